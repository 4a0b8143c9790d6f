"""Hits that end inside a block, worked by hand: blocks of eight tokens, hashes of four.

tokens     0 ....... 8 ... 12 ... 16       a prompt of 15: its last hash boundary before its last token is 12
full       1         2                     block 2 is found by 12 tokens before it is full
state      .         3                     block 3 is the state after 12, if a chunk ends there
"""

import pytest

from blockyard.core.config import Publish
from blockyard.core.errors import InsufficientBlocks, InvalidRequest
from core.worked_pool import WorkedPool, group

FULL = group("full_attention", 8)
STATE = group("mamba", 8, mamba_cache_mode="align")


def make_pool(**options: object) -> WorkedPool:
    """With "a", which has computed 12 of its prompt's 15 tokens."""
    pool = WorkedPool(FULL, STATE, hash_block_size=4, **options)  # type: ignore[arg-type]
    assert pool.allocate("a", 15, max_new_tokens=12).block_ids == [[1, 2], [0, 3]]
    return pool


def test_blocks_are_found_by_a_part_of_their_tokens() -> None:
    pool = make_pool()
    assert [pool.keys(block) for block in (1, 2, 3)] == [["8 tokens"], ["12 tokens"], ["12 tokens"]]
    assert pool.find(15) == (12, [[1, 2], [0, 3]])


def test_a_state_is_one_only_where_a_chunk_ends_at_the_boundary() -> None:
    pool = WorkedPool(FULL, STATE, hash_block_size=4)
    pool.allocate("a", 15)
    assert pool.keys(3) == []
    assert pool.find(15) == (0, [[], []])


def test_a_sequence_writes_on_in_copies_of_the_blocks_that_it_found() -> None:
    pool = make_pool()
    reply = pool.allocate("b", 15)
    assert (reply.num_cached_tokens, reply.num_new_tokens) == (12, 3)
    assert (reply.block_ids, reply.copies) == ([[1, 4], [0, 5]], [[2, 4], [3, 5]])


def test_both_ends_of_a_copy_are_held_until_the_next_call_that_changes_the_pool() -> None:
    pool = make_pool()
    pool.allocate("b", 15)
    assert list(pool.pool.store.reference_counts)[1:6] == [2, 2, 2, 2, 2]
    pool.find(15)
    assert list(pool.pool.store.reference_counts)[1:6] == [2, 2, 2, 2, 2]
    pool.free()
    assert list(pool.pool.store.reference_counts)[1:6] == [2, 1, 1, 1, 1]


def test_a_source_that_its_owner_frees_stays_until_it_is_copied() -> None:
    pool = make_pool()
    pool.free("a")
    pool.allocate("b", 15)  # 2 and 3 are nobody's but the copies'
    assert list(pool.pool.store.reference_counts)[1:6] == [1, 1, 1, 2, 2]
    pool.free()
    assert list(pool.pool.store.reference_counts)[1:6] == [1, 0, 0, 1, 1]
    assert list(pool.pool.store.queue)[-2:] == [2, 3]


def test_the_running_state_leaves_a_copy_behind_that_is_found_in_its_place() -> None:
    pool = make_pool()
    reply = pool.allocate("a", 15)
    assert (reply.block_ids, reply.copies) == ([[], []], [[3, 4]])
    assert pool.tables("a") == [[1, 2], [0, 3]]
    assert [pool.keys(block) for block in (3, 4)] == [[], ["12 tokens"]]
    assert pool.find(15) == (12, [[1, 2], [0, 4]])


def test_keys_move_only_where_there_is_a_block_for_the_copy() -> None:
    pool = make_pool(num_blocks=4)
    num_free = pool.pool.store.num_free_blocks
    assert num_free == 0
    with pytest.raises(InsufficientBlocks):
        pool.allocate("a", 15)
    assert pool.keys(3) == ["12 tokens"]


def test_a_block_that_gets_full_is_found_by_all_of_its_tokens_and_by_the_part() -> None:
    pool = make_pool()
    pool.allocate("a", 16)
    assert pool.keys(2) == ["16 tokens", "12 tokens"]
    assert pool.find(15)[0] == 12
    pool.allocate("a", 17)
    assert pool.find(17)[1][0] == [1, 2]


def test_a_block_loses_all_its_keys_together() -> None:
    pool = make_pool(num_blocks=8)
    pool.allocate("a", 16)
    pool.free("a")
    pool.pool.store.take(pool.pool.store.num_free_blocks)
    assert pool.pool.store.num_cached_blocks == 0
    assert pool.find(17) == (0, [[], []])


def test_a_boundary_that_a_block_ends_at_needs_no_key_of_its_own() -> None:
    # A prompt of 18: its last boundary is 16, where both groups' blocks end.
    pool = WorkedPool(FULL, STATE, hash_block_size=4)
    pool.allocate("a", 18, max_new_tokens=16)
    assert pool.keys(2) == pool.keys(3) == ["16 tokens"]
    assert pool.allocate("b", 18).copies == []


def test_where_blocks_are_published_on_commit_the_boundary_is_found_once_it_is_committed() -> None:
    pool = make_pool(publish=Publish.ON_COMMIT)
    assert pool.find(15)[0] == 0
    pool.commit("a", 12)
    assert pool.find(15) == (12, [[1, 2], [0, 3]])


def test_where_the_state_was_overwritten_before_it_was_committed_it_is_not_found() -> None:
    pool = make_pool(publish=Publish.ON_COMMIT)
    pool.allocate("a", 15)
    pool.commit("a", 12)
    assert pool.find(15)[0] == 0


def test_full_attention_with_finer_hashes_is_found_by_the_boundary_once_its_block_is_full() -> None:
    pool = WorkedPool(group("full_attention", 8), hash_block_size=4)
    pool.allocate("a", 15)
    assert pool.keys(2) == []
    pool.allocate("a", 16)
    assert pool.keys(2) == ["16 tokens", "12 tokens"]


def test_a_count_that_takes_nothing_back_is_taken_behind_the_boundary() -> None:
    # A step says the counts of all its sequences where one of them has guessed wrong.
    pool = make_pool()
    assert pool.allocate("a", 15, num_computed_tokens=12).num_new_tokens == 3


def test_tokens_before_a_boundary_that_is_found_are_not_taken_back() -> None:
    pool = make_pool()
    with pytest.raises(InvalidRequest, match="cannot go back"):
        pool.allocate("a", 15, num_computed_tokens=11)
