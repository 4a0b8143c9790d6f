"""README's examples do what it says they do."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

from blockyard.client.kv_events import BlockStored, KvBatch
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm
from server_process import running_server
from settings_table import COMMAND, settings_table, table_in

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def python_example(name: str) -> str:
    """The one that uses ``name``."""
    examples: list[str] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (example,) = [example for example in examples if name in example]
    return example


def printed_by(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.strip()


def test_the_schedulers_example_runs() -> None:
    example = python_example("Scheduler")
    (comment,) = re.findall(r"print\(.*\)  # (.*)", example)
    with running_server("--log-level", "warning") as server:
        assert printed_by(example.replace("http://127.0.0.1:8484", server.url)) == comment


def test_the_routers_example_runs() -> None:
    example = python_example("ZmqFollower")
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        endpoint, replay = (f"tcp://127.0.0.1:{bound.getsockname()[1]}" for bound in (one, other))
    options = ("--event-endpoint", endpoint, "--event-replay-endpoint", replay)
    with running_server("--log-level", "warning", *options) as server:
        routed = "/v1/pools/routed"
        create, allocate, commit = re.findall(r"\$ROUTED\S* --json '(.*)' -o", README)
        assert server.call("PUT", routed, json.loads(create))[0] == 201
        lease = server.call("POST", f"{routed}/leases", {"holder": "me", "ttl_ms": 60_000})[1]["lease_id"]
        for call, body in (("allocate", allocate), ("commit", commit)):
            told = json.loads(body.replace("'$LEASE'", lease))
            assert server.call("POST", f"{routed}/{call}", told)[0] == 200
        code = example.replace("http://127.0.0.1:8484", server.url)
        code = code.replace("tcp://127.0.0.1:5557", endpoint).replace("tcp://127.0.0.1:5558", replay)
        assert printed_by(code) == "True"


def test_an_event_is_as_shown() -> None:
    (shown,) = re.findall(r"^data: (.*)$", README, re.MULTILINE)
    batch = KvBatch.from_json(json.loads(shown))
    (event,) = batch.events
    assert isinstance(event, BlockStored)
    chain, hashes = Hasher(HashAlgorithm.BLAKE2B, event.block_size).start().append(event.token_ids)
    assert [block_hash.hex() for block_hash in hashes] == list(event.block_hashes)
    assert chain.num_blocks == 1


def test_the_workers_example_runs() -> None:
    example = python_example("Worker")
    (layer,) = re.findall(r'layers\["(.*?)"\]', example)
    spec = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}
    plan = {"workers": [{"available_memory_bytes": 2**14, "layers": {layer: spec}}], "max_model_len": 64}
    with running_server("--log-level", "warning") as server:
        assert server.call("PUT", "/v1/pools/llama", {"plan": plan})[0] == 201
        code = example.replace("http://127.0.0.1:8484", server.url).replace("cuda:0", "cpu")
        assert printed_by(code + "    print(list(keys.shape))") == "[64, 2, 4, 8]"


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


def test_the_table_of_settings_has_each_with_its_default() -> None:
    assert table_in(README) == settings_table(), f"write it anew: {COMMAND}"
