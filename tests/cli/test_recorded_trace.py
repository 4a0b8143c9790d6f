"""An hour of a production chat service, and what a pool of each size caches of it."""

import json
import os
from pathlib import Path

import pytest

from cli.support import replay

ROOT = Path(__file__).parents[2]
TRACE = Path(os.environ.get("BLOCKYARD_TRACE", ROOT.parent / "shared/traces/conversation_trace.jsonl"))
RECORDED = json.loads((ROOT / "tests/data/replay.json").read_text())

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason="BLOCKYARD_TRACE names no trace")


@pytest.mark.parametrize("case", RECORDED["expected"], ids=lambda case: f"{case['num_blocks']} blocks")
def test_the_trace_is_cached_as_recorded(case: dict[str, int]) -> None:
    done = replay(TRACE, "--num-blocks", str(case["num_blocks"]), "--block-size", str(RECORDED["block_size"]))
    assert done["num_requests"] == RECORDED["requests"]
    assert done["input_tokens"] == RECORDED["input_tokens"]
    assert done["cached_tokens"] == case["cached_tokens"]
