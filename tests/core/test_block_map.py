"""Maps and counts of blocks say what the block tables say, for any pool, slice by slice."""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.block_map import (
    FIRST_LEASE,
    MAX_LEASES,
    OTHERS,
    SEVERAL,
    BlockMap,
    State,
    map_by_lease,
    map_by_state,
)
from blockyard.core.commands import AllocateBlocks, CreateLease, DeleteLease, Free
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.holdings import SLICE_BLOCKS, count_holdings
from blockyard.core.ids import NULL_BLOCK, LeaseId, SequenceId
from blockyard.core.pool import Pool
from core.worked_pool import WorkedPool, group

T = TypeVar("T")

FULL = group("full_attention")
WINDOW = group("sliding_window", sliding_window=6)
HOST = replace(FULL, is_host_resident=True)
POOLS = [((FULL,), None), ((FULL, WINDOW), None), ((FULL, HOST), 200)]
LEASES = [LeaseId(f"lease {number}") for number in range(4)]


def done(look: Generator[None, None, T]) -> tuple[T, int]:
    """What ``look`` returns, and in how many slices."""
    num_slices = 1
    while True:
        try:
            next(look)
        except StopIteration as end:
            result: T = end.value
            return result, num_slices
        num_slices += 1


def begin_lease(pool: Pool, lease_id: LeaseId) -> None:
    if lease_id not in pool.leases:
        pool.apply(CreateLease(lease_id=lease_id, holder=f"holder of {lease_id}", ttl_ms=1_000), 0)


def take(pool: Pool, lease_id: LeaseId, num_blocks: int) -> None:
    begin_lease(pool, lease_id)
    pool.apply(AllocateBlocks(lease_id=lease_id, num_blocks=num_blocks), 0)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Some leases with sequences of one text, of which they share blocks, and with blocks of their own."""
    groups, num_host_blocks = draw(st.sampled_from(POOLS))
    worked = WorkedPool(*groups, num_blocks=draw(st.integers(2, 60)), num_host_blocks=num_host_blocks)
    for number, (lease_id, kind, size) in enumerate(
        draw(
            st.lists(
                st.tuples(
                    st.sampled_from(LEASES), st.sampled_from(["admit", "free", "raw"]), st.integers(1, 40)
                ),
                max_size=12,
            )
        )
    ):
        begin_lease(worked.pool, lease_id)
        try:
            if kind == "admit":
                worked.allocate(str(number), size, lease=lease_id)
            elif kind == "raw":
                take(worked.pool, lease_id, 1 + size // 8)
            else:
                ids = [SequenceId(str(earlier)) for earlier in range(0, number, 2)]
                worked.pool.apply(Free(lease_id=lease_id, sequence_ids=ids), 0)
        except InsufficientBlocks:
            pass
    return worked.pool


def holders(pool: Pool) -> dict[int, set[LeaseId]]:
    """Who holds each of the device's blocks, block by block."""
    found: dict[int, set[LeaseId]] = {}
    for lease in pool.leases.values():
        blocks = [*lease.raw_blocks]
        for sequence in lease.sequences.values():
            for table, its in zip(sequence.tables, pool.config.groups, strict=True):
                blocks += [] if its.is_host_resident else table.block_ids
        for block in blocks:
            found.setdefault(block, set()).add(lease.lease_id)
    found.pop(NULL_BLOCK, None)
    return found


def counts(made: BlockMap) -> dict[str, int]:
    return {entry.label: entry.num_blocks for entry in made.legend if entry.num_blocks}


@given(pools())
def test_a_map_by_state_has_each_block_in_its_state(pool: Pool) -> None:
    made, _ = done(map_by_state(pool))
    held = holders(pool)
    for block, code in enumerate(made.codes):
        has_content = pool.store.hashes[block] is not None
        expected = {
            (False, False): State.FREE,
            (False, True): State.FREE_CACHED,
            (True, False): State.HELD,
            (True, True): State.HELD_CACHED,
        }[block in held, has_content]
        assert code == (State.NULL if block == NULL_BLOCK else expected)


@given(pools())
def test_a_map_by_lease_has_each_block_with_who_holds_it(pool: Pool) -> None:
    made, _ = done(map_by_lease(pool))
    own = {entry.code: entry.lease_id for entry in made.legend if entry.lease_id is not None}
    held = holders(pool)
    states = done(map_by_state(pool))[0].codes
    for block, code in enumerate(made.codes):
        if block not in held:
            assert code == states[block]
        elif len(held[block]) > 1:
            assert code == SEVERAL
        else:
            assert {own[code]} == held[block]


@given(pools())
def test_counts_of_a_legend_are_those_of_its_codes_and_of_an_audit(pool: Pool) -> None:
    audit = pool.audit()
    for look in (map_by_state, map_by_lease):
        made, _ = done(look(pool))
        found = Counter(made.codes)
        assert {entry.code: entry.num_blocks for entry in made.legend if entry.num_blocks} == found
        assert found[State.NULL] == audit.num_null_blocks
        assert found[State.FREE] + found[State.FREE_CACHED] == audit.num_free_blocks
        assert len(made.codes) - found[0] - found[1] - found[2] == audit.num_held_blocks


@given(pools())
def test_leases_hold_what_an_audit_counts(pool: Pool) -> None:
    found, _ = done(count_holdings(pool))
    expected = [
        (holder.lease_id, holder.holder, holder.num_sequences, holder.num_blocks)
        for holder in pool.audit().holders
    ]
    assert [(each.lease_id, each.holder, each.num_sequences, each.num_blocks) for each in found] == expected


def test_large_pools_take_slices_and_lose_nothing_between_them() -> None:
    pool = WorkedPool(FULL, num_blocks=5 * SLICE_BLOCKS).pool
    take(pool, LEASES[0], 3 * SLICE_BLOCKS)
    take(pool, LEASES[1], 10)
    by_state, num_state_slices = done(map_by_state(pool))
    by_lease, num_lease_slices = done(map_by_lease(pool))
    found, num_slices = done(count_holdings(pool))
    num_free = 2 * SLICE_BLOCKS - 11
    assert counts(by_state) == {"null": 1, "free": num_free, "held": 3 * SLICE_BLOCKS + 10}
    assert counts(by_lease) == {
        "null": 1,
        "free": num_free,
        f"holder of {LEASES[0]}": 3 * SLICE_BLOCKS,
        f"holder of {LEASES[1]}": 10,
    }
    assert [each.num_blocks for each in found] == [0, 3 * SLICE_BLOCKS, 10]
    assert min(num_state_slices, num_lease_slices) > 5
    assert num_slices > 3


def test_the_lease_with_the_most_blocks_to_itself_comes_first() -> None:
    pool = WorkedPool(FULL).pool
    for lease_id, num_blocks in zip(LEASES, (2, 7, 3), strict=False):
        take(pool, lease_id, num_blocks)
    own = [entry for entry in done(map_by_lease(pool))[0].legend if entry.lease_id is not None]
    assert [(entry.code, entry.lease_id, entry.num_blocks) for entry in own] == [
        (FIRST_LEASE, LEASES[1], 7),
        (FIRST_LEASE + 1, LEASES[2], 3),
        (FIRST_LEASE + 2, LEASES[0], 2),
    ]


def test_more_leases_than_codes_share_one() -> None:
    pool = WorkedPool(FULL, num_blocks=1_000).pool
    for number in range(MAX_LEASES + 5):
        take(pool, LeaseId(str(number)), 1 + (number >= 5))
    made, _ = done(map_by_lease(pool))
    assert counts(made)["other leases"] == made.codes.count(OTHERS) == 5
    assert len(made.legend) == FIRST_LEASE + MAX_LEASES


@pytest.mark.parametrize("look", [map_by_state, map_by_lease, count_holdings])
def test_a_pool_may_change_between_slices(look: Callable[[Pool], Generator[None, None, object]]) -> None:
    pool = WorkedPool(FULL, num_blocks=4 * SLICE_BLOCKS).pool
    for lease_id in LEASES[:2]:
        take(pool, lease_id, SLICE_BLOCKS)
    going = look(pool)
    next(going)
    pool.apply(DeleteLease(lease_id=LEASES[0]), 0)
    take(pool, LEASES[2], 5)
    made, _ = done(going)
    if isinstance(made, BlockMap):
        assert sum(entry.num_blocks for entry in made.legend) == len(made.codes) == 4 * SLICE_BLOCKS
