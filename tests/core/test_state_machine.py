"""The machine is run for long enough, and what ought to happen in a run has happened."""

from collections import Counter

from hypothesis import settings

from core.drawn_pools import STATE_POOLS, pool_configs
from core.pin_machine import PinMachine
from core.pool_machine import SETTINGS, PoolMachine, run
from rounds import NIGHTLY, run_rounds, seeded

NUM_RUNS = 4_000 if NIGHTLY else 300
"""Of fifty steps at most: 200,000 steps at night, 15,000 by day. What came of it is counted and asserted."""

CHUNKS = ("chunked_local_attention", "chunked_local_attention", "full_attention")

WINDOWS = ("sliding_window", "chunked_local_attention", "rswa", "full_attention")

SHARES = (
    (0.25, PoolMachine, pool_configs()),
    (0.1, PinMachine, pool_configs()),
    (0.05, PoolMachine, pool_configs(CHUNKS, caching=True)),
    (0.2, PoolMachine, pool_configs(STATE_POOLS, caching=True)),
    (0.1, PinMachine, pool_configs(STATE_POOLS, caching=True)),
    (0.2, PinMachine, pool_configs(WINDOWS, caching=True, drafts=True)),
    (0.1, PinMachine, pool_configs(caching=True, host=True)),
)

WORKERS_SHARE = 0.15
"""Of the runs, beside: with workers that come and go."""

"""Of the runs, with which pools: of any mixture, and of those that few of these would be."""

FIRST_SEED = 11
"""One by which all that must happen does in the first round."""

MIN_STEPS = 100_000 if NIGHTLY else 5_000
"""Steps that were really gone through, or the run counts for nothing."""

MIN_FAULTS = 45
"""Kinds of faulty request that were really made, of about sixty."""

MUST_HAPPEN = (
    "hit",
    "hit, chunks begin inside blocks",
    "hit, ends inside a block",
    "hit in step",
    "lookup that hits",
    "evictions",
    "dropped blocks stand",
    "a hash has two blocks",
    "a block has two hashes",
    "copies",
    "Fork: Forked",
    "Fork: InsufficientBlocks",
    "Idempotent: Forked",
    "copies of forks",
    "copies on write",
    "copies on write in step",
    "hit beside sliding_window",
    "hit beside rswa",
    "hit beside mamba",
    "hit beside a draft",
    "hit beside speculative blocks",
    "hit beside host blocks",
    "Allocate: InsufficientBlocks",
    "AllocateBlocks: InsufficientBlocks",
    "admission in step: insufficient_blocks",
    "admission in step: sequence_exists_elsewhere",
    "extension in step: insufficient",
    "extension in step: by the pool's counts",
    "extension in step: changes only",
    "FreeBlocks: DoubleFree",
    "FreeBlocks: NotOwner",
    "Idempotent: Allocated",
    "Idempotent: InsufficientBlocks",
    "Idempotent: Stepped",
    "reset: True",
    "reset: False",
    "restarts",
    "RegisterWorker: WorkerReplaced",
    "Heartbeat: WorkerReplaced",
    "RemoveWorker: WorkerRemoved",
    "RemoveWorker: WorkerNotFound",
    "AllocateBlocks: NotReady",
    "Idempotent: NotReady",
    "worker registers again",
    "epoch begins while blocks are held",
    "sequences of earlier epochs are freed",
    "sequences of earlier epochs go no further",
    "event: BlocksStored",
    "event: BlockRemoved",
    "event: AllBlocksCleared",
    "event: with tokens",
    "pinned: hard",
    "pinned: cached already",
    "CreatePin: PrefixNotCached",
    "DeletePin: Unpinned",
    "RenewPin: Pinned",
    "evictions of pinned blocks",
    "evictions by grade",
    "counts come back",
    "expired pins",
    "expired leases",
    "sequences freed by expiry",
    "fault: extension to no tokens",
    "fault: step extends to no tokens",
)
"""Without these a run would have shown little."""


def test_the_pool_does_what_the_naive_pool_does() -> None:
    def run_shares(round_number: int) -> Counter[str]:
        coverage: Counter[str] = Counter()
        with_workers = [
            (WORKERS_SHARE, PinMachine, pools) for pools in (pool_configs(), pool_configs(STATE_POOLS))
        ]
        for share, machine, drawn_pools in (*SHARES, *with_workers):

            class Machine(machine):  # type: ignore[misc,valid-type]
                pools = drawn_pools
                has_workers = (share, machine, drawn_pools) in with_workers

            num_runs = round(share * NUM_RUNS)
            draws = seeded(Machine, FIRST_SEED + round_number)
            coverage += run(draws, settings(SETTINGS, max_examples=num_runs))
        return coverage

    coverage = run_rounds(run_shares, MUST_HAPPEN)
    assert coverage["steps"] >= MIN_STEPS
    assert sum(what.startswith("fault: ") for what in coverage) >= MIN_FAULTS
