"""The audit finds every kind of fault that is planted in a pool."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from blockyard.core.commands import Admission, Allocate, AllocateBlocks, CreateLease
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.ids import LeaseId, SequenceHandle, SequenceId
from blockyard.core.pool import Pool

LEASE = LeaseId("lease")
SEQUENCE = SequenceId("sequence")


def make_busy_pool() -> Pool:
    """Ten blocks: a sequence holds 1 to 3, two of them cached; the lease holds 4 besides."""
    config = PoolConfig(
        num_blocks=10,
        groups=(GroupConfig(kind="full_attention", block_size=4),),
        scheduler_block_size=4,
        hash_block_size=4,
        publish=Publish.ON_ALLOCATE,
    )
    pool = Pool(config)
    pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1000), 0)
    admission = Admission(sequence_id=SEQUENCE, num_tokens=9, block_hashes=[b"one", b"two"])
    pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)
    pool.apply(AllocateBlocks(lease_id=LEASE, num_blocks=1), 0)
    return pool


def free_a_held_block(pool: Pool) -> None:
    pool.store.queue.append([1])


def lose_a_free_block(pool: Pool) -> None:
    pool.store.queue.pop(1)


def break_the_queue(pool: Pool) -> None:
    pool.store.queue._num_free += 1


def count_a_holder_too_many(pool: Pool) -> None:
    pool.store.reference_counts[1] += 1


def count_a_holder_too_few(pool: Pool) -> None:
    pool.store.reference_counts[4] -= 1


def name_a_block_twice(pool: Pool) -> None:
    pool.leases[LEASE].sequences[SEQUENCE].tables[0].block_ids.append(1)


def name_a_free_block(pool: Pool) -> None:
    pool.leases[LEASE].raw_blocks[9] = None


def forget_a_raw_block(pool: Pool) -> None:
    del pool.leases[LEASE].raw_blocks[4]


def forget_a_sequence(pool: Pool) -> None:
    del pool.leases[LEASE].sequences[SEQUENCE]


def lend_a_sequence(pool: Pool) -> None:
    pool.leases[LEASE].sequences[SEQUENCE].lease_id = LeaseId("another")


def swap_a_handle(pool: Pool) -> None:
    pool.leases[LEASE].sequences[SEQUENCE].handle = SequenceHandle(99)


def commit_too_much(pool: Pool) -> None:
    pool.leases[LEASE].sequences[SEQUENCE].num_committed_tokens = 10


def publish_too_much(pool: Pool) -> None:
    pool.leases[LEASE].sequences[SEQUENCE].tables[0].num_published = 4


def swap_two_cached_blocks(pool: Pool) -> None:
    block_ids = pool.leases[LEASE].sequences[SEQUENCE].tables[0].block_ids
    block_ids[0], block_ids[1] = block_ids[1], block_ids[0]


def forget_a_hash(pool: Pool) -> None:
    pool.store.hashes[1] = None


def forget_an_index_entry(pool: Pool) -> None:
    pool.store.index.remove_run([1])


def carry_another_hash(pool: Pool) -> None:
    pool.store.hashes[1] = b"other"


def miscount_the_cached(pool: Pool) -> None:
    pool.store.num_cached_blocks += 1


def hash_the_null_block(pool: Pool) -> None:
    pool.store.hashes[0] = b"null"


def lose_a_further_key(pool: Pool) -> None:
    pool.store.publish_part(1, 0, b"part")
    pool.store.index.remove_further(0, b"part", 1)


def keep_a_further_key_too_many(pool: Pool) -> None:
    pool.store.further_hashes[1] = [b"part"]


def know_a_part_of_a_block_without_keys(pool: Pool) -> None:
    pool.store.unfilled.add(3)


def forget_that_a_copy_is_held(pool: Pool) -> None:
    pool.store.touch([1, 4])
    assert pool.leases[LEASE].copies == []


def remember_a_copy_too_long(pool: Pool) -> None:
    pool.leases[LEASE].copies.append((1, 4))


def hold_a_block_below_zero(pool: Pool) -> None:
    pool.leases[LEASE].raw_blocks[-79] = None


def put_a_block_below_zero_into_a_table(pool: Pool) -> None:
    pool.leases[LEASE].sequences[SEQUENCE].tables[0].block_ids[1] = -79


def configure_a_block_too_many(pool: Pool) -> None:
    pool.config = replace(pool.config, num_blocks=11)


FAULTS = [
    configure_a_block_too_many,
    hold_a_block_below_zero,
    put_a_block_below_zero_into_a_table,
    lose_a_further_key,
    keep_a_further_key_too_many,
    know_a_part_of_a_block_without_keys,
    forget_that_a_copy_is_held,
    remember_a_copy_too_long,
    free_a_held_block,
    lose_a_free_block,
    break_the_queue,
    count_a_holder_too_many,
    count_a_holder_too_few,
    name_a_block_twice,
    name_a_free_block,
    forget_a_raw_block,
    forget_a_sequence,
    lend_a_sequence,
    swap_a_handle,
    commit_too_much,
    publish_too_much,
    swap_two_cached_blocks,
    forget_a_hash,
    forget_an_index_entry,
    carry_another_hash,
    miscount_the_cached,
    hash_the_null_block,
]


def test_a_pool_in_order_has_no_problems() -> None:
    audit = make_busy_pool().audit()
    assert (audit.ok, audit.problems) == (True, [])
    assert (audit.num_free_blocks, audit.num_held_blocks, audit.num_null_blocks) == (5, 4, 1)


def test_blocks_with_several_keys_and_copies_that_are_held_are_in_order() -> None:
    pool = make_busy_pool()
    pool.store.publish_part(1, 0, b"part")
    pool.store.publish_part(3, 0, b"other part")
    pool.store.touch([1, 4])
    pool.leases[LEASE].copies.append((1, 4))
    assert pool.audit().problems == []


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(plant: Callable[[Pool], None]) -> None:
    pool = make_busy_pool()
    plant(pool)
    audit = pool.audit()
    assert not audit.ok
    assert audit.problems
