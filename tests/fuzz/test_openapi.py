"""schemathesis against a server of our own: what the OpenAPI document says is what is answered.

All of its checks, and one of ours (see the hooks); all of its phases. ``BLOCKYARD_NIGHTLY=1`` draws as many
examples an operation as the long form has to, which takes the better part of an hour.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from blockyard.server.app import create_app
from blockyard.server.settings import Settings
from rounds import NIGHTLY, run_rounds
from server_process import environment, running_server

FOLDER = Path(__file__).parent
NUM_EXAMPLES = 2_000 if NIGHTLY else 6
FIRST_SEED = 5
"""By day: with it each operation does what it is for in the first round, as things stand."""

TIMEOUT_S = 4 * 3600 if NIGHTLY else 300
OF_A_CLUSTER = {"GET /v1/cluster"}
"""Refused by a server that is no node of one."""


def operations() -> set[str]:
    """As the tally names them."""
    paths = create_app(Settings()).api.openapi()["paths"]
    documented = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    return documented - OF_A_CLUSTER


def test_what_is_answered_is_what_the_document_says(tmp_path: Path) -> None:
    """Not only refusals: what nobody gets to is not tried."""
    run_rounds(lambda number: succeeded(tmp_path, number), tuple(sorted(operations())))


def succeeded(folder: Path, round_number: int) -> Counter[str]:
    """How often each operation did what it is for, in a round without a fault."""
    tally = folder / "tally.json"
    options = ["--checks", "all", "--no-color", "--max-examples", str(NUM_EXAMPLES)]
    if not NIGHTLY:
        options += ["--seed", str(FIRST_SEED + round_number)]
    with running_server("--log-level", "error", "--max-wait-ms", "50") as server:  # nobody waits for long
        command = [sys.executable, "-m", "schemathesis.cli"]
        command += ["--config-file", str(FOLDER / "schemathesis.toml")]
        done = subprocess.run(
            [*command, "run", f"{server.url}/openapi.json", *options],
            cwd=folder,
            env=environment(
                {
                    "PYTHONPATH": f"{FOLDER.parent}:{FOLDER}",
                    "BLOCKYARD_FUZZED_URL": server.url,
                    "BLOCKYARD_FUZZED_TALLY": str(tally),
                }
            ),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for pool in ("plain", "kinds", "planned", "told"):
            _, audit = server.call("GET", f"/v1/pools/{pool}/audit")
            assert audit["ok"], audit["problems"]
    print(tally.read_text())
    found: Counter[str] = Counter()
    for entry, times in json.loads(tally.read_text()).items():
        operation, status = entry.rsplit(" ", 1)
        found[operation] += times if status.startswith("2") else 0
    return found
