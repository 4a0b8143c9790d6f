"""An hour of a production chat service, and what a pool of each size caches of it."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from server_process import start

ROOT = Path(__file__).parents[2]
TRACE = Path(os.environ.get("BLOCKYARD_TRACE", ROOT.parent / "shared/traces/conversation_trace.jsonl"))
RECORDED = json.loads((ROOT / "tests/data/replay.json").read_text())
TIMEOUT_S = 300

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason="BLOCKYARD_TRACE names no trace")

Replays = dict[int, subprocess.Popen[str]]


@pytest.fixture(scope="module")
def replays() -> Iterator[Replays]:
    """All sizes at once, each with a server of its own: a replay alone keeps one processor busy."""
    with ExitStack() as stack:
        started: Replays = {}
        for case in RECORDED["expected"]:
            num_blocks = case["num_blocks"]
            options = ["--num-blocks", str(num_blocks), "--block-size", str(RECORDED["block_size"]), "--json"]
            started[num_blocks] = stack.enter_context(start("replay", TRACE, *options))
            stack.callback(started[num_blocks].terminate)
        yield started


@pytest.mark.parametrize("case", RECORDED["expected"], ids=lambda case: f"{case['num_blocks']} blocks")
def test_the_trace_is_cached_as_recorded(case: dict[str, int], replays: Replays) -> None:
    process = replays[case["num_blocks"]]
    output, complaints = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, complaints
    done = json.loads(output)
    assert done["num_requests"] == RECORDED["requests"]
    assert done["input_tokens"] == RECORDED["input_tokens"]
    assert done["cached_tokens"] == case["cached_tokens"]
