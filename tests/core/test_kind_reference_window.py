"""Reference sliding window, worked by hand: blocks of four tokens, a window of four."""

import pytest

from blockyard.core.errors import InvalidRequest
from core.worked_pool import WorkedPool, group

RSWA = group("rswa", rswa_window=4)


def test_blocks_between_prompt_and_window_are_dropped_from_the_last_one_back() -> None:
    # prompt 6    |0 .. 5|            ends inside block 1, which stays
    # 20 tokens   0  1  [2  3]  4     16 to 19 are in the window
    pool = WorkedPool(RSWA)
    pool.allocate("a", 20, num_prompt_tokens=6)
    pool.allocate("a", 21)
    assert pool.table("a") == [1, 2, 0, 0, 5, 6]
    assert list(pool.pool.store.queue)[-2:] == [4, 3]


def test_a_prompt_is_all_that_a_sequence_begins_with_unless_it_says_otherwise() -> None:
    pool = WorkedPool(RSWA)
    pool.allocate("a", 20)
    pool.allocate("a", 40)
    pool.allocate("a", 41)
    assert pool.table("a") == [1, 2, 3, 4, 5, 0, 0, 0, 0, 10, 11]


def test_a_prompt_alone_drops_nothing() -> None:
    pool = WorkedPool(RSWA)
    pool.allocate("a", 40, max_new_tokens=20)
    pool.allocate("a", 40)
    assert 0 not in pool.table("a")


def test_hits_are_those_of_full_attention() -> None:
    pool = WorkedPool(RSWA)
    pool.allocate("a", 21)
    assert pool.find(21) == (20, [[1, 2, 3, 4, 5]])


def test_tokens_are_not_taken_back_behind_what_was_dropped() -> None:
    # After 20 tokens the window begins at 16, and blocks 1 to 3 are dropped; token 16 looks back to 12.
    pool = WorkedPool(RSWA)
    pool.allocate("a", 20, num_prompt_tokens=4, num_guesses=16)
    pool.allocate("a", 24, num_guesses=20)
    with pytest.raises(InvalidRequest, match="cannot go back"):
        pool.allocate("a", 24, num_computed_tokens=19)
    pool.allocate("a", 24, num_computed_tokens=20)
