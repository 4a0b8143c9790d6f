"""`blockyard replay --steps` of the recorded trace over HTTP, beside the peer in process.

The same requests, 32 of them in flight: each lot is freed before the next is admitted, in the order of the
trace. Ours is the command as a user runs it, with a server of its own; its time is the one that it tells,
from the first step to the last reply. The peer's is that of `benchmarks.beside.peer_jobs`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.beside.peer import PeerMissing
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting

NAME, BOUND = "replay", 1.0
NUM_BLOCKS, BLOCK_SIZE, AT_A_TIME, ALL = 10_001, 512, 32, 100_000


def measure(setting: Setting) -> Iterator[Figure]:
    """One row."""
    figure = Figure(claim=NAME, what="conversations in steps of 32", bound=BOUND)
    missing = ""
    try:
        trace = setting.peer.trace()
    except PeerMissing as error:
        yield Figure(claim=NAME, what=figure.what, bound=BOUND, note=str(error))
        return
    limit = setting.pick(ALL, 200)
    job = {
        "requests": "conversation",
        "trace": str(trace),
        "limit": limit,
        "num_blocks": NUM_BLOCKS,
        "block_size": BLOCK_SIZE,
        "at_a_time": AT_A_TIME,
    }
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        peer = None
        try:
            peer = stack.enter_context(setting.peer.jobs())
        except PeerMissing as error:
            missing = f"no peer: {error}"
        for number in range(setting.rounds):
            setting.note(f"round {number + 1}: replay")
            ours.append(replayed(trace, limit))
            if peer is not None:
                theirs.append(peer.do(job))
    cached = [{each["cached_tokens"] for each in side} for side in (ours, theirs)]
    hits = ", ".join(f"{tokens:,}" for side in cached for tokens in side)
    note = missing or f"cached tokens of ours and the peer's: {hits}"
    times_ms = ([1e3 * each["seconds"] for each in side] for side in (ours, theirs))
    yield Figure(claim=NAME, what=figure.what, bound=BOUND, note=note).measured(*times_ms)


def replayed(trace: Path, limit: int) -> dict[str, Any]:
    """What the command tells."""
    options = ["--num-blocks", str(NUM_BLOCKS), "--block-size", str(BLOCK_SIZE), "--limit", str(limit)]
    command = [sys.executable, "-m", "blockyard.server", "replay", str(trace), "--steps", "--json"]
    done = subprocess.run(
        [*command, "--concurrency", str(AT_A_TIME), *options], check=True, stdout=subprocess.PIPE, text=True
    )
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome
