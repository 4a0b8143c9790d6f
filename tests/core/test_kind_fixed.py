"""Groups whose blocks nobody finds again: cross attention, buffers in a circle, hot and resident pages."""

import pytest

from blockyard.core.errors import InsufficientBlocks, InvalidRequest
from core.worked_pool import WorkedPool, group

FULL = group("full_attention")


def test_cross_attention_holds_the_encoders_tokens_from_beginning_to_end() -> None:
    pool = WorkedPool(FULL, group("cross_attention"), enable_prefix_caching=False)
    assert pool.allocate("a", 3, num_encoder_tokens=9).block_ids == [[1], [2, 3, 4]]
    assert pool.allocate("a", 40).block_ids[1] == []


def test_cross_attention_holds_nothing_without_an_encoders_tokens() -> None:
    pool = WorkedPool(FULL, group("cross_attention"), enable_prefix_caching=False)
    assert pool.allocate("a", 3).block_ids == [[1], []]


def test_an_encoders_tokens_have_to_fit() -> None:
    pool = WorkedPool(FULL, group("cross_attention"), enable_prefix_caching=False, num_blocks=4)
    with pytest.raises(InsufficientBlocks):
        pool.allocate("a", 3, num_encoder_tokens=9)


def test_no_pool_with_cross_attention_caches_prefixes() -> None:
    with pytest.raises(InvalidRequest, match="enable_prefix_caching"):
        WorkedPool(FULL, group("cross_attention"))


@pytest.mark.parametrize("kind", ["circular_buffer", "kpool_tail"])
def test_a_circle_is_one_block_whatever_the_length(kind: str) -> None:
    pool = WorkedPool(group(kind), FULL)
    assert pool.allocate("a", 9).block_ids == [[1], [2, 3, 4]]
    assert pool.allocate("a", 13).block_ids == [[], [5]]


@pytest.mark.parametrize("kind", ["circular_buffer", "kpool_tail"])
def test_a_circle_takes_no_part_in_a_hit(kind: str) -> None:
    pool = WorkedPool(group(kind), FULL)
    pool.allocate("a", 9)
    assert pool.find(9) == (8, [[], [2, 3]])
    assert pool.allocate("b", 9).block_ids == [[5], [2, 3, 6]]


@pytest.mark.parametrize("kind", ["circular_buffer", "kpool_tail"])
def test_a_pool_of_circles_alone_finds_nothing(kind: str) -> None:
    pool = WorkedPool(group(kind))
    pool.allocate("a", 9)
    assert pool.find(9) == (0, [[]])


def test_a_hot_buffer_is_as_large_as_it_is() -> None:
    pool = WorkedPool(group("hot", num_blocks_per_request=3), FULL)
    assert pool.allocate("a", 1).block_ids == [[1, 2, 3], [4]]
    assert pool.allocate("a", 40).block_ids[0] == []


def test_resident_blocks_are_given_back_once_their_tokens_are_computed() -> None:
    #             0  4  8
    # 10 tokens   1  2  3
    # 12 tokens   .  .  3      8 are in whole blocks
    pool = WorkedPool(group("resident"), enable_prefix_caching=False)
    pool.allocate("a", 10)
    assert pool.allocate("a", 13).block_ids == [[2]]
    assert pool.table("a") == [0, 0, 3, 2]


def test_resident_blocks_of_a_hit_are_null() -> None:
    pool = WorkedPool(FULL, group("resident"))
    pool.allocate("a", 9)
    pool.free("a")
    assert pool.allocate("b", 9).block_ids[1][:2] == [0, 0]


def test_admission_bounds_resident_blocks_by_what_is_in_flight() -> None:
    # 40 tokens would take ten blocks, and eight in flight take two, or three.
    pool = WorkedPool(group("resident"), enable_prefix_caching=False, num_blocks=5, max_in_flight_tokens=8)
    pool.allocate("a", 40, max_new_tokens=8, full_sequence_must_fit=True)
    with pytest.raises(InsufficientBlocks):
        pool.allocate("b", 40, max_new_tokens=8, full_sequence_must_fit=True)
