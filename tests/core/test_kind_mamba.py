"""Recurrent layers, worked by hand: blocks of four, R the running state, s one of a speculated token."""

import pytest

from blockyard.core.commands import Admission, Step
from blockyard.core.config import Publish
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import SequenceId
from blockyard.core.kinds import kind_of
from blockyard.core.replies import Admitted, Stepped
from blockyard.core.sequences import MAX_TOKENS
from core.worked_pool import LEASE, WorkedPool, group

RUNNING = group("mamba", mamba_cache_mode="none", num_speculative_blocks=1)
ALIGNED = group("mamba", mamba_cache_mode="align")
SPECULATING = group("mamba", mamba_cache_mode="align", num_speculative_blocks=2)
FULL = group("full_attention")


def make_pool(*groups: object, **options: object) -> WorkedPool:
    return WorkedPool(*groups, **options)  # type: ignore[arg-type]


def test_only_states_at_the_ends_of_blocks_can_be_found() -> None:
    assert (kind_of(RUNNING).allows_hits, kind_of(ALIGNED).allows_hits) == (False, True)


def test_a_running_state_alone_drops_what_lies_before_it() -> None:
    pool = make_pool(RUNNING, enable_prefix_caching=False)
    assert pool.allocate("a", 10).block_ids == [[1, 2, 3, 4]]  # R at position 2, s behind it
    assert pool.allocate("a", 11).block_ids == [[]]
    assert pool.table("a") == [0, 0, 3, 4]
    assert pool.allocate("a", 13).block_ids == [[2]]  # 2 and 1 came back, 2 is the first to be used again
    assert pool.table("a") == [0, 0, 3, 4, 2]


def test_aligned_states_begin_with_nulls_a_running_one_and_speculative_ones() -> None:
    #             0  4  8
    # 10 tokens   .  .  R  s  s
    pool = make_pool(SPECULATING)
    assert pool.allocate("a", 10).block_ids == [[0, 0, 1, 2, 3]]


def test_a_sequence_that_few_blocks_would_do_for_is_refused_before_its_table_fills_the_memory() -> None:
    pool = make_pool(ALIGNED)
    with pytest.raises(InvalidRequest, match="num_tokens"):
        pool.allocate("a", MAX_TOKENS + 1, num_guesses=MAX_TOKENS + 1)
    pool.allocate("a", 10)
    with pytest.raises(InvalidRequest, match="num_tokens"):
        pool.allocate("a", MAX_TOKENS + 1, num_guesses=MAX_TOKENS)
    assert pool.table("a") == [0, 0, 1]


def test_lookahead_takes_no_states() -> None:
    assert make_pool(SPECULATING).allocate("a", 10, num_lookahead_tokens=7).block_ids == [[0, 0, 1, 2, 3]]


def test_nothing_is_taken_while_the_running_state_stays_in_its_block() -> None:
    pool = make_pool(SPECULATING)
    pool.allocate("a", 10)
    assert pool.allocate("a", 12).block_ids == [[]]


def test_the_next_block_takes_one_state_and_the_state_before_is_dropped_once_it_is_past() -> None:
    #             0  4  8  12 16 20
    # 10 tokens   .  .  R  s  s
    # 13 tokens   .  .  1  R  s  s      1: the state that the running one is copied from
    # 14 tokens   .  .  .  R  s  s
    pool = make_pool(SPECULATING)
    pool.allocate("a", 10)
    assert pool.allocate("a", 13).block_ids == [[4]]
    assert pool.table("a") == [0, 0, 1, 2, 3, 4]
    pool.allocate("a", 14)
    assert pool.table("a") == [0, 0, 0, 2, 3, 4]


def test_speculative_states_move_on_with_a_chunk() -> None:
    #             0  4  8  12 16 20 24 28
    # 14 tokens   .  .  .  2  3  4
    # 30 tokens   .  .  .  2  .  .  .  3  4  5    one is new, 3 is the running one
    # 31 tokens   .  .  .  .  .  .  .  3  4  5
    pool = make_pool(SPECULATING)
    for num_tokens in (10, 13, 14):
        pool.allocate("a", num_tokens)
    assert pool.allocate("a", 30).block_ids == [[0, 3, 4, 5]]
    assert pool.table("a") == [0, 0, 0, 2, 0, 0, 0, 3, 4, 5]
    pool.allocate("a", 31)
    assert pool.table("a") == [0, 0, 0, 0, 0, 0, 0, 3, 4, 5]


def test_a_chunk_takes_one_block_however_long_it_is() -> None:
    pool = make_pool(ALIGNED, num_blocks=4)
    pool.allocate("a", 4)
    pool.allocate("a", 400)
    assert pool.pool.num_held_blocks == 2


def test_a_hit_is_the_rightmost_state_alone() -> None:
    # Chunks end at 8 and 12, so states 1 and 2 stand after them; a prompt of 13 tokens finds the second.
    pool = make_pool(ALIGNED)
    pool.allocate("a", 8)
    pool.allocate("a", 12)
    assert pool.find(14) == (12, [[0, 0, 2]])
    assert pool.find(12) == (8, [[0, 1]])  # never all of a prompt
    assert pool.find(8) == (0, [[]])


def test_a_hit_is_held_until_the_state_behind_it_is_written() -> None:
    #             0  4  8  12
    # hit         .  1
    # 14 tokens   .  1  .  R      R is copied from 1
    # 15 tokens   .  .  .  R
    pool = make_pool(ALIGNED)
    pool.allocate("a", 8)
    pool.free("a")
    reply = pool.allocate("b", 14)
    assert (reply.num_cached_tokens, reply.block_ids) == (8, [[0, 1, 0, 2]])
    assert pool.pool.num_held_blocks == 2
    pool.allocate("b", 15)
    assert pool.table("b") == [0, 0, 0, 2]
    assert pool.find(9)[0] == 8  # dropped, and cached still


def test_where_blocks_are_published_on_commit_a_state_counts_if_a_chunk_ended_there() -> None:
    pool = make_pool(ALIGNED, publish=Publish.ON_COMMIT)
    pool.allocate("ends", 8)
    assert pool.commit("ends", 8) == 1
    pool.allocate("runs past", 26, skip_prefix_cache=True)
    assert pool.commit("runs past", 26) == 0
    assert pool.find(30) == (8, [[0, 1]])


def test_what_an_uncommitted_chunk_goes_on_from_is_not_dropped() -> None:
    pool = make_pool(ALIGNED, publish=Publish.ON_COMMIT)
    for num_tokens in (4, 8, 12):
        pool.allocate("a", num_tokens)
    assert pool.table("a") == [1, 2, 3]
    pool.commit("a", 8)
    pool.allocate("a", 13)
    assert pool.table("a") == [0, 2, 3, 1]  # 1 was never published, so it is the first to be used again


def test_a_state_is_no_hit_in_the_step_that_writes_it() -> None:
    def num_cached(*groups: object) -> list[int]:
        pool = make_pool(*groups)
        admissions = [
            Admission(sequence_id=SequenceId(name), num_tokens=n, block_hashes=pool.hashes(0, n))
            for name, n in (("a", 8), ("b", 9))
        ]
        stepped = pool.pool.apply(Step(lease_id=LEASE, admit=admissions), 0)
        assert isinstance(stepped, Stepped)
        found = [admitted.num_cached_tokens for admitted in stepped.admit if isinstance(admitted, Admitted)]
        return [*found, pool.find(9)[0]]

    assert num_cached(FULL) == [0, 8, 8]
    assert num_cached(FULL, ALIGNED) == [0, 0, 8]


def test_states_and_attention_are_found_where_both_are_cached() -> None:
    pool = make_pool(FULL, ALIGNED)
    pool.allocate("a", 8)
    pool.allocate("a", 15)
    assert pool.find(16) == (8, [[1, 2], [0, 3]])


def test_a_speculated_token_that_was_wrong_gives_its_state_back_to_the_next() -> None:
    #             0  4  8  12 16
    # 3 tokens    R  s  s
    # 3 + 3       1  R  s  s      three guesses, all of them wrong
    # 4 tokens    R  2  s  s      the running state is in the first block again
    # 8 tokens    1  R  s  s
    # 9 tokens    .  2  R  s  s
    pool = make_pool(SPECULATING)
    pool.allocate("a", 3)
    assert pool.allocate("a", 6, num_guesses=3).block_ids == [[4]]
    assert pool.table("a") == [1, 2, 3, 4]
    pool.allocate("a", 4, num_computed_tokens=3)
    assert pool.table("a") == [1, 2, 3, 4]
    pool.allocate("a", 8)
    assert pool.table("a") == [1, 2, 3, 4]
    pool.allocate("a", 9)
    assert pool.table("a") == [0, 2, 3, 4, 5]


def test_as_many_guesses_may_be_wrong_as_there_are_speculative_states_wherever_blocks_end() -> None:
    #             0  4  8  12 16
    # 3 tokens    R  s  s
    # 8 + 2       1  .  R  s  s      the states after 8, 9 and 10 tokens lie in R and the two behind it
    # 8 tokens                       so the chunk goes on from there, though no block stands for 4 to 7
    pool = make_pool(SPECULATING)
    pool.allocate("a", 3)
    pool.allocate("a", 10, num_guesses=2)
    assert pool.table("a") == [1, 0, 3, 2, 4]
    assert pool.allocate("a", 9, num_computed_tokens=8).block_ids == [[]]
