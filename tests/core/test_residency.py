"""How long cached blocks live, how long they are idle before they are evicted or held again."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from blockyard.core.block_store import BlockStore
from blockyard.core.config import Eviction, PoolConfig
from blockyard.core.histogram import Histogram
from blockyard.core.pool import Pool
from blockyard.core.residency import SAMPLE_EVERY, Residency
from blockyard.core.statistics import Counters
from core.drawn_pools import STATE_POOLS, pool_configs
from core.naive_residency import WatchedBlocks
from core.pool_machine import SETTINGS, PoolMachine, run
from core.worked_pool import WorkedPool, group
from rounds import NIGHTLY, run_rounds, seeded

NUM_RUNS = 400 if NIGHTLY else 20
"""Of each sort of pool."""

MUST_HAPPEN = (
    *("lifetimes", "idle times", "reuse gaps", "copies", "restarts", "reset: True"),
    "epoch begins while blocks are held",
)
"""Without these the runs would have shown little."""

WATCHED = 1
"""The one block of a small store that is in the sample."""


class TimedStore:
    """Six blocks, of which a sequence takes the first three."""

    def __init__(self) -> None:
        self.blocks = BlockStore(6, 1, Counters())
        self.blocks.residency = Residency(6)
        assert self.blocks.take(3) == [1, 2, 3]

    def at(self, seconds: int) -> BlockStore:
        self.blocks.residency.now_ms = 1_000 * seconds
        return self.blocks

    @property
    def spans(self) -> tuple[list[float], list[float], list[float]]:
        """Of lifetimes, idle times and gaps: their number and their sum, or nothing if there are none."""
        kept = self.blocks.residency
        histograms = (kept.lifetime_s, kept.idle_before_evict_s, kept.reuse_gap_s)
        lifetimes, idle, gaps = ([sum(h.counts), h.sum] if any(h.counts) else [] for h in histograms)
        return lifetimes, idle, gaps


def test_a_block_lives_from_its_publication_to_its_eviction() -> None:
    store = TimedStore()
    store.at(0).publish_run([WATCHED], 0, [b"one"])
    store.at(10).release([WATCHED])
    store.at(25).touch([WATCHED])
    store.at(30).release([WATCHED])
    assert store.spans == ([], [], [1, 15.0])
    assert WATCHED in store.at(40).take(3)
    assert store.spans == ([1, 40.0], [1, 10.0], [1, 15.0])


def test_of_every_hit_the_gap_before_it_is_counted() -> None:
    store = TimedStore()
    store.at(0).publish_run([WATCHED], 0, [b"one"])
    for number in range(1, 4):
        store.at(10 * number).release([WATCHED])
        store.at(10 * number + number).touch([WATCHED])
    assert store.spans == ([], [], [3, 1.0 + 2.0 + 3.0])


def test_a_hit_on_a_block_that_is_held_ends_no_gap() -> None:
    store = TimedStore()
    store.at(0).publish_run([WATCHED], 0, [b"one"])
    store.at(5).touch([WATCHED])
    store.at(10).release([WATCHED])  # still held by the other
    store.at(20).touch([WATCHED])
    assert store.spans == ([], [], [])


def test_blocks_without_content_are_neither_idle_nor_evicted() -> None:
    store = TimedStore()
    store.at(10).release([WATCHED])
    assert store.at(20).take(1) == [WATCHED]
    assert store.spans == ([], [], [])


def test_blocks_outside_the_sample_are_not_counted() -> None:
    store = TimedStore()
    store.at(0).publish_run([2], 0, [b"two"])
    store.at(10).release([2])
    store.at(20).touch([2])
    store.at(30).release([2])
    assert 2 in store.at(40).take(3)
    assert store.spans == ([], [], [])


def test_what_is_forgotten_at_once_is_not_evicted() -> None:
    store = TimedStore()
    store.at(0).publish_run([WATCHED], 0, [b"one"])
    store.at(10).release([WATCHED])
    store.at(20).forget_all()
    assert WATCHED in store.at(30).take(3)
    assert store.spans == ([], [], [])


def test_a_block_that_gets_full_begins_anew() -> None:
    store = TimedStore()
    store.at(0).publish_part(WATCHED, 0, b"part")
    store.at(4).publish_part(WATCHED, 0, b"longer part")
    store.at(10).publish_run([WATCHED], 0, [b"all"])
    store.at(11).publish_part(WATCHED, 0, b"part of it")
    store.at(30).release([WATCHED])
    assert WATCHED in store.at(50).take(3)
    assert store.spans == ([1, 40.0], [1, 20.0], [])


def test_a_block_that_hashes_move_to_begins_to_live_and_the_other_is_not_evicted() -> None:
    store = TimedStore()
    store.at(0).publish_run([2], 0, [b"one"])
    store.at(10).move_hashes(2, WATCHED)
    store.at(30).release([WATCHED])
    assert WATCHED in store.at(50).take(3)
    assert store.spans == ([1, 40.0], [1, 20.0], [])
    store.at(60).publish_run([WATCHED], 0, [b"two"])
    store.at(70).move_hashes(WATCHED, 3)
    store.at(80).release([3, WATCHED])
    assert store.at(90).take(2) == [WATCHED, 3]
    assert store.spans == ([1, 40.0], [1, 20.0], [])


def test_a_copy_that_was_not_made_is_not_evicted() -> None:
    store = TimedStore()
    store.at(0).publish_run([WATCHED], 0, [b"one"])
    store.blocks.states_to_copy[WATCHED] = "lease"  # type: ignore[assignment]
    store.at(0).publish_run([2], 0, [b"two"])
    store.at(10).note_copied(WATCHED, is_copied=False)
    store.at(10).release([2, WATCHED])
    assert store.at(20).take(4) == [WATCHED, 4, 5, 2]  # with one that is evicted
    assert store.spans == ([], [], [])


def test_the_sample_is_every_127th_block_and_never_the_null_block() -> None:
    assert Residency(2 * SAMPLE_EVERY + 2).sample == {1, 1 + SAMPLE_EVERY, 1 + 2 * SAMPLE_EVERY}
    assert Residency(2).sample == {1}
    assert Residency(0).sample == frozenset()


def test_a_pools_commands_tell_the_time() -> None:
    pool = WorkedPool(group("full_attention"), num_blocks=4)
    pool.now_ms = 100
    pool.allocate("a", 9)
    pool.now_ms = 300
    pool.free("a")
    pool.now_ms = 200  # counts as the last one
    pool.allocate("b", 9)
    pool.free("b")
    pool.now_ms = 700
    pool.allocate("c", 12, num_guesses=12)
    kept = pool.pool.residency
    assert [kept.lifetime_s.sum, kept.idle_before_evict_s.sum, kept.reuse_gap_s.sum] == [0.6, 0.4, 0.0]
    assert [sum(histogram.counts) for histogram in kept.histograms().values()] == [1, 1, 1]


def test_host_blocks_are_not_watched() -> None:
    host = group("full_attention", is_host_resident=True)
    pool = WorkedPool(group("full_attention"), host, num_blocks=10, num_host_blocks=20).pool
    assert pool.stores[0].residency is pool.residency
    assert pool.stores[1].residency.sample == frozenset()


def test_a_restored_pool_begins_anew() -> None:
    pool = WorkedPool(group("full_attention"), num_blocks=4)
    pool.allocate("a", 9)
    pool.free("a")
    pool.allocate("b", 9)
    snapshot = pool.pool.snapshot()
    pool.pool = Pool.restore(snapshot)
    assert pool.pool.snapshot() == snapshot
    pool.free("b")
    pool.allocate("c", 12, num_guesses=12)
    found = {name: sum(each.counts) for name, each in pool.pool.residency.histograms().items()}
    assert found == {"lifetime_s": 0, "idle_before_evict_s": 1, "reuse_gap_s": 0}


class ResidencyMachine(PoolMachine):
    """Watches every third block, and looks at what it counts beside what plain dictionaries say of all."""

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        super().create(data)
        naive = self.pair.naive
        naive.stores[0] = WatchedBlocks(naive.config.num_blocks, lambda: naive.now_ms)

    @rule(through_cbor=st.booleans(), passed_ms=st.sampled_from([0, 10, 3_000]))
    def restart(self, *, through_cbor: bool, passed_ms: int) -> None:
        self.watched.restart()
        super().restart(through_cbor=through_cbor, passed_ms=passed_ms)

    @property
    def watched(self) -> WatchedBlocks:
        blocks = self.pair.naive.device
        assert isinstance(blocks, WatchedBlocks)
        return blocks

    @staticmethod
    def plant(pool: Pool) -> None:
        pool.residency = pool.store.residency = Residency(pool.config.num_blocks, 3)
        pool.residency.now_ms = pool.now_ms

    @invariant()
    def same_spans(self) -> None:
        naive, kept = self.watched, self.pair.pool.residency
        for histogram, spans in (
            (kept.lifetime_s, naive.lifetimes),
            (kept.idle_before_evict_s, naive.idle_times),
            (kept.reuse_gap_s, naive.reuse_gaps),
        ):
            expected = Histogram(histogram.bounds)
            for block, span_ms in spans:
                if block in kept.sample:
                    expected.observe(span_ms / 1_000)
            assert histogram.counts == expected.counts
            assert histogram.sum == pytest.approx(expected.sum)
        self.coverage["lifetimes"] += any(kept.lifetime_s.counts)
        self.coverage["idle times"] += kept.idle_before_evict_s.sum > 0
        self.coverage["reuse gaps"] += kept.reuse_gap_s.sum > 0


def least_recently_used(config: PoolConfig) -> PoolConfig:
    """As ``config``: `WatchedBlocks` know no other order, and what is counted goes by none."""
    return replace(config, eviction=Eviction.LRU)


def test_what_is_counted_of_the_sample_is_what_plain_dictionaries_say() -> None:
    def run_pools(round_number: int) -> Counter[str]:
        coverage: Counter[str] = Counter()
        for drawn_pools in (pool_configs(caching=True), pool_configs(STATE_POOLS, caching=True)):

            class Machine(ResidencyMachine):
                pools = drawn_pools.map(least_recently_used)
                has_workers = True

            coverage += run(seeded(Machine, round_number), settings(SETTINGS, max_examples=NUM_RUNS))
        return coverage

    run_rounds(run_pools, MUST_HAPPEN)
