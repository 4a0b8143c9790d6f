"""README's examples do what it says they do."""

import json
import re
import subprocess
import sys
from pathlib import Path

from server_process import running_server

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_the_schedulers_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (comment,) = re.findall(r"print\(.*\)  # (.*)", example)
    with running_server("--log-level", "warning") as server:
        code = example.replace("http://127.0.0.1:8484", server.url)
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == comment


def test_the_example_of_groups_makes_a_pool() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    with running_server("--log-level", "warning") as server:
        status, pool = server.call("PUT", "/v1/pools/example", json.loads(example))
    assert status == 201
    assert pool["scheduler_block_size"] == 32


def test_the_example_of_allocate_answers_as_shown() -> None:
    create = re.search(r"-X PUT \$DEMO --json '(.*)' -o", README)
    allocate = re.search(r"\$DEMO/allocate --json '(.*)'", README)
    answer = re.search(r'^\{"epoch":1,"sequence".*$', README, re.MULTILINE)
    assert create
    assert allocate
    assert answer
    with running_server("--log-level", "warning") as server:
        server.call("PUT", "/v1/pools/demo", json.loads(create.group(1)))
        lease = server.call("POST", "/v1/pools/demo/leases", {"holder": "me", "ttl_ms": 600_000})[1]
        body = json.loads(allocate.group(1).replace("'$LEASE'", lease["lease_id"]))
        assert server.call("POST", "/v1/pools/demo/allocate", body) == (200, json.loads(answer.group()))
