"""The core alone, beside the peer's cache manager on the same requests: see `benchmarks.beside`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.beside.peer import JobsProcess, PeerMissing, jobs_process
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting

NAME, BOUND = "core", 4.0
NUM_BLOCKS = 10_001


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests, one after the other."""

    what: str
    requests: str
    block_size: int
    limit: int


WORKLOADS = (
    Workload(what="conversations, blocks of 512", requests="conversation", block_size=512, limit=100_000),
    Workload(what="2,000 tokens without hits, blocks of 16", requests="fresh", block_size=16, limit=2_000),
)
MANNERS = {
    "on_allocate": "allocate (publishes) and free, as the peer",
    "on_commit": "allocate, commit (publishes) and free",
}


def measure(setting: Setting) -> Iterator[Figure]:
    """How many times as fast: the same calls as the peer's first, then with the default pool's commit."""
    with ExitStack() as stack:
        ours = stack.enter_context(jobs_process(sys.executable, "our_jobs.py"))
        peer, missing = None, ""
        try:
            peer = stack.enter_context(setting.peer.jobs())
        except PeerMissing as error:
            missing = f"no peer: {error}"
        for workload in WORKLOADS:
            try:
                job = job_of(workload, setting)
            except PeerMissing as error:
                yield Figure(claim=NAME, what=workload.what, value=None, bound=BOUND, note=str(error))
                continue
            yield from figures_of(workload, job, ours, peer, missing, setting)


def job_of(workload: Workload, setting: Setting) -> dict[str, Any]:
    """What `benchmarks.beside` is asked to do; how blocks are published is left to say.

    Raises:
        PeerMissing: The recorded trace is not there.
    """
    job: dict[str, Any] = {
        "requests": workload.requests,
        "block_size": workload.block_size,
        "limit": setting.pick(workload.limit, 50),
        "num_blocks": NUM_BLOCKS,
        "at_a_time": 1,
    }
    if workload.requests == "conversation":
        job["trace"] = str(setting.peer.trace())
    return job


def figures_of(
    workload: Workload,
    job: dict[str, Any],
    ours: JobsProcess,
    peer: JobsProcess | None,
    missing: str,
    setting: Setting,
) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = {name: [] for name in (*MANNERS, "peer")}
    for number in range(setting.rounds):
        setting.note(f"round {number + 1}: {workload.what}")
        cached_tokens = set()
        for publish in MANNERS:
            done = ours.do({**job, "publish": publish})
            seconds[publish].append(done["seconds"])
            cached_tokens.add(done["cached_tokens"])
        if peer is not None:
            done = peer.do(job)
            seconds["peer"].append(done["seconds"])
            cached_tokens.add(done["cached_tokens"])
        assert len(cached_tokens) == 1, f"they do not find the same: {cached_tokens}"
    for publish, manner in MANNERS.items():
        figure = Figure(
            claim=NAME,
            what=f"{workload.what}: {manner}",
            bound=BOUND,
            is_floor=True,
            note=missing or f"{next(iter(cached_tokens)):,} cached tokens",
        )
        times_ms = ([1e3 * each for each in seconds[who]] for who in (publish, "peer"))
        yield figure.measured(*times_ms, is_speed=True)
