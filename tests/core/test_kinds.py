"""The three questions, answered by each kind: worked by hand, blocks of four tokens."""

from typing import Any

import pytest

from blockyard.core.block_store import BlockStore
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.kinds import Demand, HitSearch, Kind, Progress, kinds_of
from blockyard.core.sequence import BlockTable
from blockyard.core.statistics import Counters


def make_kind(kind: str, **sizes: Any) -> Kind:
    groups = [GroupConfig(kind=kind, block_size=4, **sizes)]
    (made,) = kinds_of(PoolConfig.of(num_blocks=2, groups=groups, enable_prefix_caching=False))
    return made


def find(
    kind: Kind, cached: set[int], max_tokens: int, alignment: int = 4, *, drops_last: bool = False
) -> list[int]:
    """The hit in a prompt of twenty blocks, ``cached`` ones of them cached; block n caches position n - 1."""
    store = BlockStore(21, 1, Counters())
    hashes = [bytes([position]) for position in range(20)]
    for position in cached:
        store.publish_run([position + 1], 0, [hashes[position]])
    search = HitSearch(store.index, [0], hashes, hashes, 4, alignment, set())
    hit = kind.longest_hit(search, max_tokens, drops_last=drops_last)
    (blocks,) = hit.blocks
    assert hit.num_tokens == 4 * len(blocks)
    return blocks


def demand(num_tokens: int, num_lookahead_tokens: int = 0, num_encoder_tokens: int = 0) -> Demand:
    return Demand(num_tokens, num_tokens + num_lookahead_tokens, num_encoder_tokens)


FULL = make_kind("full_attention")
SLIDING = make_kind("sliding_window", sliding_window=9)  # eight tokens behind the one computed: two blocks
CHUNKED = make_kind("chunked_local_attention", attention_chunk_size=8)
RETAINING = make_kind("sliding_window", sliding_window=9, extra_retained_tokens=4)
FULL_DRAFT = make_kind("full_attention", is_draft=True)
SLIDING_DRAFT = make_kind("sliding_window", sliding_window=9, is_draft=True)
REFERENCE = make_kind("rswa", rswa_window=4)
STATE = make_kind("mamba", mamba_cache_mode="align", num_speculative_blocks=2)
RUNNING = make_kind("mamba", num_speculative_blocks=2)


@pytest.mark.parametrize("kind", [FULL, SLIDING, CHUNKED, REFERENCE, make_kind("resident")])
def test_a_begun_block_is_a_whole_one(kind: Kind) -> None:
    assert [kind.num_blocks(demand(tokens)) for tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert kind.num_blocks(demand(4, num_lookahead_tokens=1)) == 2


def test_speculated_tokens_take_states_of_their_own_and_no_positions_where_these_are_aligned() -> None:
    assert [STATE.num_blocks(demand(4, lookahead)) for lookahead in (0, 4)] == [3, 3]
    assert [RUNNING.num_blocks(demand(4, lookahead)) for lookahead in (0, 4)] == [3, 4]


@pytest.mark.parametrize(
    ("kind", "num_blocks"),
    [
        (make_kind("circular_buffer"), 1),
        (make_kind("kpool_tail"), 1),
        (make_kind("hot", num_blocks_per_request=3), 3),
        (make_kind("cross_attention"), 5),
    ],
)
def test_some_tables_do_not_grow_with_their_tokens(kind: Kind, num_blocks: int) -> None:
    assert [kind.num_blocks(demand(n, 3, num_encoder_tokens=18)) for n in (1, 100)] == [num_blocks] * 2


def test_what_is_missing_is_bounded_where_a_bound_is_given() -> None:
    table = BlockTable([1, 2])
    assert [FULL.num_missing(table, demand(40), bound) for bound in (None, 5, 1)] == [8, 3, 0]


def test_of_states_one_is_missing_and_at_first_the_speculative_ones() -> None:
    assert STATE.num_missing(BlockTable([]), demand(40)) == 3
    assert STATE.num_missing(BlockTable([0, 0, 1]), demand(40)) == 3  # a hit: the state to go on from
    assert STATE.num_missing(BlockTable([1, 2, 3], has_states=True), demand(40)) == 1
    assert STATE.num_missing(BlockTable([1, 2, 3], has_states=True), demand(4)) == 0


def test_full_attention_skips_nothing() -> None:
    assert FULL.num_skipped_blocks(1_000) == 0


def test_a_sliding_window_skips_what_the_next_token_does_not_see() -> None:
    # After 12 tokens the next one, at position 12, sees 4 to 12: block 0 is skipped.
    assert [SLIDING.num_skipped_blocks(tokens) for tokens in (8, 11, 12, 15, 16)] == [0, 0, 1, 1, 2]


def test_retained_tokens_are_kept_behind_the_window() -> None:
    assert [RETAINING.num_skipped_blocks(tokens) for tokens in (12, 15, 16, 20)] == [0, 0, 1, 2]


def test_retained_tokens_are_not_needed_by_a_hit() -> None:
    assert find(RETAINING, {0, 1, 2, 4, 5, 7}, 40) == find(SLIDING, {0, 1, 2, 4, 5, 7}, 40)


def test_a_reference_window_drops_what_lies_between_the_prompt_and_the_window() -> None:
    # The prompt's last block is not dropped, nor is the window's first.
    assert REFERENCE.droppable(Progress(20, 6)) == range(2, 4)
    assert REFERENCE.droppable(Progress(19, 6)) == range(2, 3)
    assert len(REFERENCE.droppable(Progress(12, 6))) == 0
    assert len(REFERENCE.droppable(Progress(6, 20))) == 0


def test_dropping_goes_back_to_the_null_before() -> None:
    table = BlockTable([1, 0, 3, 4, 5, 6])
    assert SLIDING.drop(table, Progress(24, 24)) == [4, 3]
    assert table.block_ids == [1, 0, 0, 0, 5, 6]
    assert SLIDING.drop(table, Progress(24, 24)) == []


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


def test_a_full_draft_drops_one_alignment_of_what_was_found() -> None:
    assert find(FULL_DRAFT, {0, 1, 2}, 16, drops_last=True) == [1, 2]
    assert find(FULL_DRAFT, {0, 1, 2, 3}, 16, alignment=8, drops_last=True) == [1, 2]
    assert find(FULL_DRAFT, {0, 1, 2}, 16, alignment=8, drops_last=True) == []
    assert find(FULL_DRAFT, set(), 16, drops_last=True) == []


def test_a_sliding_draft_needs_one_more_block_and_drops_the_last() -> None:
    assert find(SLIDING_DRAFT, {1, 2, 4, 5, 6}, 40, drops_last=True) == [0, 0, 0, 0, 5, 6]
    assert find(SLIDING_DRAFT, {4, 5}, 40, drops_last=True) == []
    assert find(SLIDING_DRAFT, {0, 1}, 40, drops_last=True) == [1]


def test_a_sliding_drafts_edge_is_aligned_without_its_last_block() -> None:
    # Runs of three end at 28, 24 and 20; less their last block, 24, 20 and 16.
    assert find(SLIDING_DRAFT, {2, 3, 4, 5, 6}, 28, alignment=8, drops_last=True) == [0, 0, 0, 0, 5, 6]
    assert find(SLIDING_DRAFT, {2, 3, 4, 5}, 28, alignment=8, drops_last=True) == [0, 0, 3, 4]


def test_a_draft_that_has_dropped_is_looked_up_as_any_other() -> None:
    assert find(SLIDING_DRAFT, {4, 5}, 24) == [0, 0, 0, 0, 5, 6]


def test_a_state_is_found_by_itself() -> None:
    assert find(STATE, {1, 4}, 40) == [0, 0, 0, 0, 5]
    assert find(STATE, {1, 4}, 19) == [0, 2]
    assert find(STATE, {1, 4}, 40, alignment=8) == [0, 2]
    assert find(STATE, set(), 40) == []


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
        ("full_attention", {"extra_retained_tokens": 1}),
        ("full_attention", {"num_speculative_blocks": 1}),
        ("rswa", {}),
        ("rswa", {"rswa_window": 0}),
        ("hot", {}),
        ("resident", {"num_blocks_per_request": 1}),
        ("circular_buffer", {"is_draft": True}),
        ("cross_attention", {"sliding_window": 4}),
        ("chunked_local_attention", {"attention_chunk_size": 4, "is_draft": True}),
        ("mamba", {"is_draft": True}),
        ("mamba", {"mamba_cache_mode": "all"}),
        ("mamba", {"sliding_window": 4}),
        ("unheard_of", {}),
    ],
)
def test_sizes_that_are_not_the_kinds_are_refused(kind: str, sizes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        make_kind(kind, **sizes)


def test_admission_bounds_what_a_windowed_sequence_holds_at_a_time() -> None:
    # A window of 9 and 16 tokens in flight: 24 tokens, six blocks, and one as it may begin inside a block.
    assert SLIDING.max_blocks_at_once(16, None) == 7
    assert SLIDING.max_blocks_at_once(16, 8) == 3
    assert CHUNKED.max_blocks_at_once(16, None) == 6
    assert CHUNKED.max_blocks_at_once(16, 8) == 2
    assert RETAINING.max_blocks_at_once(16, None) == 8
    assert make_kind("resident").max_blocks_at_once(16, None) == 5
    assert make_kind("resident").max_blocks_at_once(16, 8) == 3
    assert FULL.max_blocks_at_once(16, None) is None


def test_a_chunk_that_begins_inside_a_block_does_not_hide_what_it_needs() -> None:
    # Chunks of six: eleven tokens end in that from 6 on, so block 0 is skipped; but a hit of one block ends
    # at 4, in the chunk from 0 on, which needs block 0.
    chunked = make_kind("chunked_local_attention", attention_chunk_size=6)
    assert find(chunked, set(), 11) == []
    assert find(chunked, {0}, 11) == [1]
    assert find(chunked, {1}, 11) == [0, 2]
