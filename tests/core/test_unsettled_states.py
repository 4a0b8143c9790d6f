"""States that only their lease may go on from: no other's workers wait for what its own do.

tokens     0 ....... 8 ... 12 ... 16       blocks of eight tokens, hashes of four, a prompt of 15
full       1         2
state      .         3                     the state after 12, that "a" runs on: 4 is to be its copy
"""

from dataclasses import replace

import pytest

from blockyard.core.commands import CreateLease, DeleteLease
from blockyard.core.ids import LeaseId
from blockyard.core.pool import Pool
from core.worked_pool import LEASE, WorkedPool, group

OTHER = LeaseId("other")


@pytest.fixture
def pool() -> WorkedPool:
    """With "a", which has computed 12 of its prompt's 15 tokens, and another lease."""
    pool = WorkedPool(
        group("full_attention", 8), group("mamba", 8, mamba_cache_mode="align"), hash_block_size=4
    )
    pool.pool.apply(CreateLease(lease_id=OTHER, holder="test", ttl_ms=1_000), 0)
    pool.allocate("a", 15, max_new_tokens=12)
    return pool


def num_cached(pool: WorkedPool, name: str, lease: LeaseId) -> int | None:
    return pool.allocate(name, 15, lease=lease).num_cached_tokens


def test_a_running_state_is_a_hit_for_its_own_lease_alone(pool: WorkedPool) -> None:
    assert num_cached(pool, "b", OTHER) == 0
    assert num_cached(pool, "c", LEASE) == 12


def test_a_state_that_is_being_copied_is_a_hit_for_other_leases_once_it_is(pool: WorkedPool) -> None:
    assert pool.allocate("a", 15).copies == [[3, 4]]
    assert num_cached(pool, "b", OTHER) == 0
    pool.free()  # the lease's next call: the copy is made
    assert num_cached(pool, "c", OTHER) == 12


def test_a_state_is_a_hit_for_all_once_nothing_overwrites_it(pool: WorkedPool) -> None:
    pool.free("a")
    assert num_cached(pool, "b", OTHER) == 12


def test_a_state_that_nobody_copied_is_lost_with_its_lease(pool: WorkedPool) -> None:
    pool.allocate("a", 15)
    pool.pool.apply(DeleteLease(lease_id=LEASE), 0)
    assert pool.keys(4) == []
    assert num_cached(pool, "b", OTHER) == 0
    assert pool.pool.audit().problems == []


@pytest.mark.parametrize("is_copying", [False, True])
def test_a_restored_pool_knows_whose_states_they_are(pool: WorkedPool, *, is_copying: bool) -> None:
    if is_copying:
        pool.allocate("a", 15)
    pool.pool = Pool.restore(pool.pool.snapshot())
    assert num_cached(pool, "b", OTHER) == 0
    assert num_cached(pool, "c", LEASE) == 12


def test_hits_do_not_end_inside_blocks_of_the_host() -> None:
    # The blocks of a copy that a reply tells of are the device's.
    pool = WorkedPool(
        replace(group("full_attention", 8), is_host_resident=True),
        replace(group("mamba", 8, mamba_cache_mode="align"), is_host_resident=True),
        hash_block_size=4,
        num_host_blocks=64,
    )
    pool.allocate("a", 15, max_new_tokens=12)
    assert num_cached(pool, "b", LEASE) == 0
    assert pool.pool.audit().problems == []
