"""Whether a call takes longer, and the garbage collector, when a pool is large or holds many sequences.

Every pool's blocks are all cached, so that what is allocated evicts. The calls go to one server, to the small
pool and the large one by turns.
"""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bench_step import block_hashes
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from blockyard.client import Client, Lease
from blockyard.core.commands import Admission, Allocate, Commit, CreateLease, Free
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.server.collector import keep, young_collections
from server_process import running_server

NAME, BOUND, PAUSE_BOUND_MS = "growth", 1.2, 2.0
BLOCK_SIZE, NUM_TOKENS, PROMPT_BLOCKS = 16, 256, 1_000
LEASE = LeaseId("benchmark")


class Calling:
    """A pool of a server, with every block cached and some sequences live.

    Args:
        client: The server's.
        name: The pool's.
        num_blocks: Its blocks.
        num_live: Sequences of 16 blocks that are held.
        stack: Ends the lease.
    """

    def __init__(self, client: Client, name: str, num_blocks: int, num_live: int, stack: ExitStack) -> None:
        pool = client.create_pool(name, num_blocks=num_blocks, block_size=BLOCK_SIZE, eviction="lru")
        self._lease: Lease = stack.enter_context(pool.lease("benchmark", 3_600_000))
        self._next = 0
        for _ in range(-(-num_blocks // PROMPT_BLOCKS)):
            self._allocate("prompt", min(PROMPT_BLOCKS, num_blocks - 1) * BLOCK_SIZE, is_committing=True)
            self._lease.free(["prompt"])
        for number in range(num_live):
            self._lease.allocate(f"live-{number}", NUM_TOKENS)

    def seconds(self) -> dict[str, float]:
        """Of an allocation and its freeing without hashes, and of the same with hashes and a commit."""
        marks = [perf_counter()]
        self._lease.allocate("sequence", NUM_TOKENS)
        self._lease.free(["sequence"])
        marks.append(perf_counter())
        self._allocate("sequence", NUM_TOKENS, is_committing=True)
        self._lease.free(["sequence"])
        marks.append(perf_counter())
        return {"plain": marks[1] - marks[0], "published": marks[2] - marks[1]}

    def _allocate(self, name: str, num_tokens: int, *, is_committing: bool) -> None:
        self._next += 1
        self._lease.allocate(name, num_tokens, block_hashes=block_hashes(self._next, 0, num_tokens))
        if is_committing:
            self._lease.commit(name, num_tokens)


CALLS = {
    "plain": "allocate and free of 16 blocks",
    "published": "allocate, commit and free of 16 new blocks",
}


def measure(setting: Setting) -> Iterator[Figure]:
    """A row for each kind of call and of growth, and one for the collector."""
    many_blocks, many_live = setting.pick(1_000_000, 20_000), setting.pick(10_000, 100)
    few_blocks, few_live = setting.pick(10_000, 2_000), 10
    live_blocks = setting.pick(400_000, 20_000)
    growths = {
        f"{many_blocks:,} blocks beside {few_blocks:,}": [(few_blocks, 0), (many_blocks, 0)],
        f"{many_live:,} live sequences beside {few_live}": [
            (live_blocks, few_live),
            (live_blocks, many_live),
        ],
    }
    for what, sizes in growths.items():
        setting.note(f"filling pools: {what}")
        with ExitStack() as stack:
            server = stack.enter_context(running_server("--volatile", "--log-level", "error"))
            client = stack.enter_context(Client(server.url))
            small, large = (
                Calling(client, f"pool-{number}", *size, stack) for number, size in enumerate(sizes)
            )
            times: dict[str, tuple[list[float], list[float]]] = {call: ([], []) for call in CALLS}
            for number in range(setting.rounds):
                setting.note(f"round {number + 1}: {what}")
                for call, (of_large, of_small) in round_us(large, small, setting.pick(400, 5)).items():
                    times[call][0].append(of_large)
                    times[call][1].append(of_small)
        for call, (in_large, in_small) in times.items():
            figure = Figure(claim=NAME, what=f"{CALLS[call]}: {what}", bound=BOUND)
            yield figure.measured(in_large, in_small, unit="µs")
    yield from pause_figures(setting)


def round_us(large: Calling, small: Calling, num_calls: int) -> dict[str, tuple[float, float]]:
    """The median of each kind of call, to the large pool and to the small one."""
    times: dict[str, tuple[list[float], list[float]]] = {call: ([], []) for call in CALLS}
    for _ in range(num_calls):
        for side, calling in enumerate((large, small)):
            for call, seconds in calling.seconds().items():
                times[call][side].append(seconds)
    return {call: (1e6 * median(one), 1e6 * median(other)) for call, (one, other) in times.items()}


@contextmanager
def collector_pauses() -> Iterator[list[float]]:
    """Milliseconds of every collection, with the server's settings."""
    pauses: list[float] = []
    began_s = 0.0

    def note(phase: str, _info: dict[str, Any]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = perf_counter()
        else:
            pauses.append((perf_counter() - began_s) * 1e3)

    with young_collections():
        gc.callbacks.append(note)
        try:
            yield pauses
        finally:
            gc.callbacks.remove(note)


def pause_figures(setting: Setting) -> Iterator[Figure]:
    """The longest collection in a process whose pool gets its sequences, and then works with them there."""
    num_live, wave = setting.pick(100_000, 1_000), setting.pick(5_000, 100)
    setting.note(f"collector: {num_live:,} live sequences")
    group = GroupConfig(kind="full_attention", block_size=BLOCK_SIZE)
    num_blocks = num_live * (NUM_TOKENS // BLOCK_SIZE) * 5 // 4
    with collector_pauses() as pauses:
        pool = Pool(PoolConfig.of(num_blocks=num_blocks, groups=[group]))
        keep()
        pool.apply(CreateLease(lease_id=LEASE, holder="benchmark", ttl_ms=10**9), 0)
        for number in range(num_live):
            admit(pool, number)
        yield pause_figure(pauses, f"while {num_live:,} sequences are admitted")
        pauses.clear()
        for first in range(0, num_live, wave):
            for number in range(first, first + wave):
                pool.apply(Free(lease_id=LEASE, sequence_ids=[SequenceId(f"live-{number}")]), 0)
            for number in range(first, first + wave):
                admit(pool, num_live + number)
        yield pause_figure(pauses, f"with {num_live:,} live, {wave:,} of which go and come at a time")


def pause_figure(pauses: list[float], what: str) -> Figure:
    return Figure(
        claim=NAME,
        what=f"longest collection {what}",
        value=max(pauses, default=0.0),
        unit="ms",
        bound=PAUSE_BOUND_MS,
        ours=f"{len(pauses)} collections",
    )


def admit(pool: Pool, number: int) -> None:
    """A sequence of 16 blocks, committed."""
    name = SequenceId(f"live-{number}")
    hashes = block_hashes(number, 0, NUM_TOKENS)
    admission = Admission(sequence_id=name, num_tokens=NUM_TOKENS, block_hashes=hashes)
    pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)
    pool.apply(Commit(lease_id=LEASE, sequence_id=name, num_computed_tokens=NUM_TOKENS), 0)
