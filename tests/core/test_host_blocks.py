"""Groups whose blocks lie in the host's memory: counted, refused, found and given back by themselves."""

from dataclasses import replace
from typing import Any

import pytest

from blockyard.core.commands import DeleteLease, ResetPrefixCache
from blockyard.core.errors import InsufficientBlocks, InvalidRequest
from blockyard.core.pool import Pool
from blockyard.core.replies import CacheReset
from core.worked_pool import LEASE, WorkedPool, group

DEVICE = group("full_attention")
HOST = replace(DEVICE, is_host_resident=True)


def make_pool(*groups: Any, num_blocks: int = 10, num_host_blocks: int = 20, **options: Any) -> WorkedPool:
    return WorkedPool(
        *(groups or (DEVICE, HOST)), num_blocks=num_blocks, num_host_blocks=num_host_blocks, **options
    )


def num_free(pool: WorkedPool) -> list[int]:
    return [store.num_free_blocks for store in pool.pool.stores]


def test_each_memory_hands_out_its_own_blocks() -> None:
    pool = make_pool()
    assert pool.allocate("a", 9).block_ids == [[1, 2, 3], [1, 2, 3]]
    assert (num_free(pool), pool.pool.num_held_blocks) == ([6, 16], 6)


@pytest.mark.parametrize(("num_blocks", "num_host_blocks"), [(3, 20), (10, 3)])
def test_a_want_in_either_memory_refuses_and_takes_nothing(num_blocks: int, num_host_blocks: int) -> None:
    pool = make_pool(num_blocks=num_blocks, num_host_blocks=num_host_blocks)
    with pytest.raises(InsufficientBlocks) as caught:
        pool.allocate("a", 9)
    assert caught.value.figures == {
        "num_required_blocks": 3,
        "num_free_blocks": 2,
        "num_usable_blocks": 2,
    }
    assert num_free(pool) == [num_blocks - 1, num_host_blocks - 1]


def test_the_watermark_is_the_devices() -> None:
    pool = make_pool(num_blocks=10, num_host_blocks=4, watermark_blocks=2)
    pool.allocate("a", 9)
    assert num_free(pool) == [6, 0]


def test_a_hit_is_found_in_each_groups_own_memory() -> None:
    pool = make_pool()
    pool.allocate("a", 9)
    pool.allocate("b", 9)
    assert pool.tables("b") == [[1, 2, 4], [1, 2, 4]]


def test_equal_groups_in_two_memories_are_looked_up_apart() -> None:
    pool = make_pool()
    pool.allocate("a", 9)
    pool.free("a")
    pool.pool.stores[1].take(19)  # what the host caches is forgotten
    assert pool.find(9) == (0, [[], []])


def test_everything_comes_back_to_where_it_was_from() -> None:
    pool = make_pool(DEVICE, HOST, group("resident"), group("hot", num_blocks_per_request=2))
    pool.allocate("a", 9)
    pool.allocate("a", 13)
    pool.pool.apply(DeleteLease(lease_id=LEASE), 0)
    assert num_free(pool) == [9, 19]
    assert pool.pool.audit().problems == []


def test_the_cache_is_reset_in_both_memories_while_nothing_is_held_in_either() -> None:
    pool = make_pool(HOST)
    pool.allocate("a", 9)
    assert pool.pool.apply(ResetPrefixCache(), 0) == CacheReset(epoch=1, ok=False)
    pool.free("a")
    assert pool.pool.apply(ResetPrefixCache(), 0) == CacheReset(epoch=1, ok=True)
    assert pool.find(9)[0] == 0


def test_the_audit_names_the_memory_of_a_problem() -> None:
    pool = make_pool()
    pool.allocate("a", 9)
    pool.pool.stores[1].reference_counts[1] += 1
    (problem,) = pool.pool.audit().problems
    assert problem.startswith("host: ")


def test_a_snapshot_holds_both_memories() -> None:
    pool = make_pool()
    pool.allocate("a", 9)
    snapshot = pool.pool.snapshot()
    restored = Pool.restore(snapshot)
    assert len(snapshot["stores"]) == 2
    assert restored.snapshot() == snapshot
    assert restored.audit().problems == []


@pytest.mark.parametrize(
    ("groups", "num_host_blocks"), [((DEVICE,), 8), ((DEVICE, HOST), None), ((DEVICE, HOST), 0)]
)
def test_host_blocks_go_with_groups_that_lie_there(groups: Any, num_host_blocks: int | None) -> None:
    with pytest.raises(InvalidRequest, match="num_host_blocks"):
        WorkedPool(*groups, num_host_blocks=num_host_blocks)


def test_a_hit_inside_a_block_of_the_hosts_is_copied_there() -> None:
    """Or such a pool is refused."""
    host, state = replace(HOST, block_size=8), group("mamba", 8, mamba_cache_mode="align")
    try:
        pool = make_pool(host, state, hash_block_size=4)
    except InvalidRequest:
        return
    pool.allocate("a", 15, max_new_tokens=12)
    pool.allocate("b", 15)
    assert pool.pool.audit().problems == []
    pool.free("a", "b")
    assert pool.pool.audit().problems == []
    assert num_free(pool) == [9, 19]
