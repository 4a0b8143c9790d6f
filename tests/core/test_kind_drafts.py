"""Groups of draft models: the last matched block is computed anew. Blocks of four tokens."""

from core.worked_pool import WorkedPool, group

FULL = group("full_attention")
DRAFT = group("full_attention", is_draft=True)
WINDOW_DRAFT = group("sliding_window", sliding_window=9, is_draft=True)


def test_a_draft_alone_drops_the_last_block_of_a_hit() -> None:
    pool = WorkedPool(DRAFT)
    pool.allocate("a", 17)
    assert pool.find(17) == (12, [[1, 2, 3]])
    assert pool.find(5) == (0, [[]])


def test_a_draft_beside_another_group_may_look_a_block_beyond_the_candidate() -> None:
    # 16 tokens: the target serves 12, as the last token is computed; the draft finds 16, and drops to 12.
    # 15 tokens: there are hashes for 12, beyond which nobody looks.
    pool = WorkedPool(FULL, DRAFT)
    pool.allocate("a", 17)
    assert pool.find(16)[0] == 12
    assert pool.find(15)[0] == 8


def test_a_window_draft_needs_one_more_block_and_drops_it() -> None:
    # A window of nine needs two blocks, so three have to be cached. Blocks 1 to 4, positions 0 to 3.
    pool = WorkedPool(WINDOW_DRAFT)
    pool.allocate("a", 17)
    assert pool.find(17) == (12, [[0, 2, 3]])


def test_a_draft_is_published_a_block_beyond_the_aligned_length() -> None:
    # 13 tokens with hashes for 12: target blocks of eight end at 8, the draft's of four go on to 12.
    pool = WorkedPool(group("full_attention", 8), DRAFT)
    pool.allocate("a", 13)
    assert pool.tables("a") == [[1, 2], [3, 4, 5, 6]]
    assert [bool(pool.keys(block)) for block in range(1, 7)] == [True, False, True, True, True, False]


def test_a_draft_of_unaligned_blocks_drops_a_whole_alignment() -> None:
    # The alignment is eight: of 16 tokens, eight are dropped. With 24 asked for, the draft looks at 20.
    pool = WorkedPool(group("full_attention", 8), DRAFT)
    pool.allocate("a", 25)
    assert pool.find(17)[0] == 8
    assert pool.find(24)[0] == 8
    assert pool.find(25)[0] == 16


def test_a_draft_whose_hit_is_shorter_than_the_alignment_finds_nothing() -> None:
    pool = WorkedPool(DRAFT, scheduler_block_size=8)
    pool.allocate("a", 5)
    assert pool.find(5) == (0, [[]])


def test_guesses_behind_a_hit_are_taken_back_though_nothing_is_retained_before_it() -> None:
    # The window of token 20 begins at 12; four tokens before it would be retained, and are no part of a hit.
    pool = WorkedPool(group("sliding_window", sliding_window=9, extra_retained_tokens=4))
    pool.allocate("a", 20)
    reply = pool.allocate("b", 24, num_guesses=3)
    assert (reply.num_cached_tokens, reply.block_ids) == (20, [[0, 0, 0, 4, 5, 6]])
    for num_computed_tokens in (24, 21, 20):
        pool.allocate("b", 24, num_guesses=3, num_computed_tokens=num_computed_tokens)
