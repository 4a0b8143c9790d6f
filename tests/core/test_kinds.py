"""The three questions, answered by each kind: worked by hand, blocks of four tokens."""

import pytest

from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.kinds import HitSearch, Kind, kind_of
from blockyard.core.prefix_index import PrefixIndex


def make_kind(kind: str, **sizes: int) -> Kind:
    return kind_of(GroupConfig(kind=kind, block_size=4, **sizes))


def find(kind: Kind, cached: set[int], max_tokens: int, alignment: int = 4) -> list[int]:
    """The hit in a prompt of twenty blocks, ``cached`` ones of them cached; block n caches position n - 1."""
    index = PrefixIndex(1)
    hashes = [bytes([position]) for position in range(20)]
    for position in cached:
        index.add(0, hashes[position], position + 1)
    return kind.longest_hit(HitSearch(index, [0], hashes, alignment), max_tokens)[0]


FULL = make_kind("full_attention")
SLIDING = make_kind("sliding_window", sliding_window=9)  # eight tokens behind the one computed: two blocks
CHUNKED = make_kind("chunked_local_attention", attention_chunk_size=8)


@pytest.mark.parametrize("kind", [FULL, SLIDING, CHUNKED])
def test_a_begun_block_is_a_whole_one(kind: Kind) -> None:
    assert [kind.num_blocks(tokens) for tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_full_attention_skips_nothing() -> None:
    assert FULL.num_skipped_blocks(1_000) == 0


def test_a_sliding_window_skips_what_the_next_token_does_not_see() -> None:
    # After 12 tokens the next one, at position 12, sees 4 to 12: block 0 is skipped.
    assert [SLIDING.num_skipped_blocks(tokens) for tokens in (8, 11, 12, 15, 16)] == [0, 0, 1, 1, 2]


def test_chunked_local_attention_skips_the_chunks_that_are_done() -> None:
    assert [CHUNKED.num_skipped_blocks(tokens) for tokens in (7, 8, 15, 16)] == [0, 2, 2, 4]


def test_a_full_hit_ends_at_the_first_miss() -> None:
    assert find(FULL, {0, 1, 3}, 16) == [1, 2]


def test_a_full_hit_is_aligned_down() -> None:
    assert find(FULL, {0, 1, 2}, 16, alignment=8) == [1, 2]


def test_a_hit_is_never_longer_than_asked() -> None:
    assert find(FULL, {0, 1, 2, 3}, 11) == [1, 2]


def test_a_sliding_hit_is_the_rightmost_run_that_covers_the_window() -> None:
    assert find(SLIDING, {0, 1, 2, 4, 5, 7}, 40) == [0, 0, 0, 0, 5, 6]


def test_a_sliding_run_has_to_end_aligned() -> None:
    assert find(SLIDING, {2, 3, 4}, 40, alignment=8) == [0, 0, 3, 4]


def test_a_short_sliding_run_counts_if_it_reaches_the_beginning() -> None:
    assert find(SLIDING, {0, 3}, 40) == [1]


def test_a_short_sliding_run_is_aligned_down_as_well() -> None:
    assert find(make_kind("sliding_window", sliding_window=30), {0, 1, 2}, 40, alignment=8) == [1, 2]


def test_a_window_of_one_token_needs_one_block() -> None:
    assert find(make_kind("sliding_window", sliding_window=1), {2}, 40) == [0, 0, 3]


def test_a_chunked_hit_needs_only_the_chunk_of_the_last_position() -> None:
    assert find(CHUNKED, {4}, 23) == [0, 0, 0, 0, 5]


def test_blocks_before_the_chunk_count_though_nobody_cached_them() -> None:
    assert find(CHUNKED, set(), 23) == [0, 0, 0, 0]


def test_a_chunked_hit_aligned_into_an_earlier_chunk_is_looked_for_anew() -> None:
    # 23 tokens lie in the chunk from 16 on, but nothing there is cached, and 16 is no multiple of 12: down
    # at 12 the chunk is that from 8 on, whose block is not cached; 8 is no multiple either.
    assert find(CHUNKED, set(), 23, alignment=12) == []
    assert find(CHUNKED, {2}, 23, alignment=12) == [0, 0, 3]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("full_attention", {"sliding_window": 4}),
        ("sliding_window", {}),
        ("sliding_window", {"sliding_window": 0}),
        ("sliding_window", {"sliding_window": 4, "attention_chunk_size": 4}),
        ("chunked_local_attention", {"sliding_window": 4}),
        ("unheard_of", {}),
    ],
)
def test_sizes_that_are_not_the_kinds_are_refused(kind: str, sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        make_kind(kind, **sizes)


def test_admission_bounds_what_a_windowed_sequence_holds_at_a_time() -> None:
    # A window of 9 and 16 tokens in flight: 24 tokens, six blocks, and one as it may begin inside a block.
    assert SLIDING.max_blocks_at_once(16, None) == 7
    assert SLIDING.max_blocks_at_once(16, 8) == 3
    assert CHUNKED.max_blocks_at_once(16, None) == 6
    assert CHUNKED.max_blocks_at_once(16, 8) == 2
    assert FULL.max_blocks_at_once(16, None) is None


def test_a_chunk_that_begins_inside_a_block_does_not_hide_what_it_needs() -> None:
    # Chunks of six: eleven tokens end in that from 6 on, so block 0 is skipped; but a hit of one block ends
    # at 4, in the chunk from 0 on, which needs block 0.
    chunked = make_kind("chunked_local_attention", attention_chunk_size=6)
    assert find(chunked, set(), 11) == []
    assert find(chunked, {0}, 11) == [1]
    assert find(chunked, {1}, 11) == [0, 2]
