"""What adaptive eviction costs the core beside least recently used, in time and in memory.

The same calls as those of `benchmarks.claims.core_calls`; what is found cached differs, and with it the work.
"""

import sys
from collections.abc import Iterator

from benchmarks.beside.peer import PeerMissing, jobs_process
from benchmarks.claims.core_calls import WORKLOADS, job_of
from benchmarks.claims.figure import Figure
from benchmarks.claims.memory import pool_figures
from benchmarks.claims.setting import Setting
from blockyard.core.config import Eviction

NAME, TIME_BOUND, BYTES_BOUND = "eviction", 1.3, 64


def measure(setting: Setting) -> Iterator[Figure]:
    """Calls in turns under both policies, then the bytes of a pool under each."""
    with jobs_process(sys.executable, "our_jobs.py") as ours:
        for workload in WORKLOADS:
            figure = Figure(claim=NAME, what=f"{workload.what}: allocate, commit and free", bound=TIME_BOUND)
            try:
                job = {**job_of(workload, setting), "publish": "on_commit"}
            except PeerMissing as error:
                yield Figure(claim=NAME, what=figure.what, bound=TIME_BOUND, note=str(error))
                continue
            times_ms: dict[Eviction, list[float]] = {eviction: [] for eviction in Eviction}
            for number in range(setting.rounds):
                setting.note(f"round {number + 1}: {workload.what}, both policies")
                for eviction, measured in times_ms.items():
                    measured.append(1e3 * ours.do({**job, "eviction": eviction})["seconds"])
            yield figure.measured(times_ms[Eviction.ADAPTIVE], times_ms[Eviction.LRU], other="lru")
    num_blocks = setting.pick(1_000_000, 20_000)
    setting.note(f"pools of {num_blocks:,} blocks")
    full = {eviction: pool_figures(num_blocks, eviction)["bytes_a_block_full"] for eviction in Eviction}
    yield Figure(
        claim=NAME,
        what=f"{num_blocks:,} blocks, all cached: bytes more than least recently used",
        value=full[Eviction.ADAPTIVE] - full[Eviction.LRU],
        unit="bytes a block",
        bound=BYTES_BOUND,
        ours=f"{full[Eviction.ADAPTIVE]:.0f} bytes a block",
        beside=f"{full[Eviction.LRU]:.0f} bytes a block",
    )
