"""Forks, worked by hand: blocks of four tokens.

tokens     0 .. 4 .. 8           a parent of six tokens: block 2 is open
parent     1    2
fork       1    2                whoever writes there first gets a copy, in 3
"""

from collections.abc import Sequence

import pytest

from blockyard.core.commands import Admission, DeleteLease, Fork, Step, StepExtend
from blockyard.core.config import Publish
from blockyard.core.errors import (
    BlockyardError,
    InsufficientBlocks,
    InvalidRequest,
    SequenceExistsElsewhere,
    SequenceNotFound,
)
from blockyard.core.ids import BlockHash, SequenceHandle, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Forked, Stepped
from core.worked_pool import LEASE, WorkedPool, group

FULL = group("full_attention")


def fork(pool: WorkedPool, parent: str, *names: str, hashes: Sequence[BlockHash] = ()) -> Forked:
    command = Fork(
        lease_id=LEASE,
        sequence_id=SequenceId(parent),
        new_sequence_ids=[SequenceId(name) for name in names],
        block_hashes=hashes,
    )
    reply = pool.pool.apply(command, pool.now_ms)
    assert isinstance(reply, Forked)
    pool.note_forked(parent, *names)
    return reply


def make_pool(num_tokens: int = 6, **options: object) -> WorkedPool:
    """With "a", which has so many tokens, all of them computed."""
    pool = WorkedPool(FULL, **options)  # type: ignore[arg-type]
    pool.allocate("a", num_tokens)
    pool.commit("a", num_tokens)
    return pool


def counts(pool: WorkedPool, num_blocks: int) -> list[int]:
    return list(pool.pool.store.reference_counts)[1 : num_blocks + 1]


def restarted(pool: WorkedPool) -> None:
    pool.pool = Pool.restore(pool.pool.snapshot())


def test_a_fork_has_its_parents_counts_and_its_blocks_and_takes_none() -> None:
    pool = make_pool()
    reply = fork(pool, "a", "b", "c")
    assert (reply.sequences, reply.block_ids, reply.copies) == ([2, 3], [[[1, 2]], [[1, 2]]], [])
    assert (reply.num_computed_tokens, reply.num_committed_tokens) == (6, 6)
    assert counts(pool, 3) == [3, 3, 0]


def test_slots_beyond_its_tokens_stay_the_parents() -> None:
    pool = WorkedPool(FULL)
    pool.allocate("a", 6, num_lookahead_tokens=4)
    assert pool.table("a") == [1, 2, 3]
    assert fork(pool, "a", "b").block_ids == [[[1, 2]]]


def test_whoever_writes_first_gets_a_copy_of_the_open_block_and_the_last_one_writes_in_place() -> None:
    pool = make_pool()
    fork(pool, "a", "b", "c")
    first = pool.allocate("a", 7)
    assert (first.block_ids, first.copies, first.replaced) == ([[]], [[2, 3]], [[1, 0, 1, 3]])
    second = pool.allocate("c", 9)
    assert (second.block_ids, second.copies, second.replaced) == ([[5]], [[2, 4]], [[3, 0, 1, 4]])
    last = pool.allocate("b", 7)
    assert (last.block_ids, last.copies, last.replaced) == ([[]], [], None)
    assert [pool.table(name) for name in "abc"] == [[1, 3], [1, 2], [1, 4, 5]]


def test_both_ends_of_a_copy_are_held_until_the_leases_next_call() -> None:
    pool = make_pool()
    fork(pool, "a", "b")
    pool.allocate("a", 7)
    pool.free("b")  # the copy's source is nobody's but the copies' by then
    assert counts(pool, 3) == [1, 0, 1]


def test_a_step_tells_whose_entry_became_which_block() -> None:
    pool = make_pool()
    a, b, c = (SequenceHandle(1), *fork(pool, "a", "b", "c").sequences)
    extend = StepExtend(sequences=[b, c, a], num_tokens=[7, 9, 6], only_changes=True)
    reply = pool.pool.apply(Step(lease_id=LEASE, extend=extend), 0)
    assert isinstance(reply, Stepped)
    assert (reply.copies, reply.replaced) == ([[2, 3], [2, 4]], [[b, 0, 1, 3], [c, 0, 1, 4]])
    assert (reply.extend.sequences, reply.extend.block_ids) == ([c], [[[5]]])


def test_full_blocks_are_never_copied() -> None:
    pool = make_pool(8)
    fork(pool, "a", "b")
    assert pool.allocate("a", 9).copies == pool.allocate("b", 9).copies == []
    assert [pool.table("a"), pool.table("b")] == [[1, 2, 3], [1, 2, 4]]


def test_no_token_is_no_write() -> None:
    pool = make_pool()
    fork(pool, "a", "b")
    assert pool.allocate("b", 6).copies == []
    assert pool.table("b") == [1, 2]


def test_slots_for_guesses_are_written_as_well() -> None:
    pool = make_pool()
    fork(pool, "a", "b")
    assert pool.allocate("b", 6, num_lookahead_tokens=1).copies == [[2, 3]]
    assert pool.allocate("b", 7).copies == []


def test_a_fork_is_forked_again() -> None:
    pool = make_pool()
    fork(pool, "a", "b")
    fork(pool, "b", "c")
    pool.allocate("b", 7)
    assert fork(pool, "b", "d").block_ids == [[[1, 3]]]
    assert pool.allocate("d", 8).copies == [[3, 4]]
    assert pool.allocate("a", 8).copies == [[2, 5]]
    assert [pool.table(name) for name in "abcd"] == [[1, 5], [1, 3], [1, 2], [1, 4]]


@pytest.mark.parametrize("order", ["abc", "bca", "cab", "cba"])
def test_freed_in_any_order_nothing_is_left_held(order: str) -> None:
    pool = make_pool()
    fork(pool, "a", "b", "c")
    pool.allocate("b", 13)
    for name in order:
        pool.free(name)
        assert pool.pool.audit().problems == []
    pool.free()
    assert pool.pool.store.num_held_blocks == 0


def test_a_copy_for_which_there_is_no_block_is_refused_and_nothing_changes() -> None:
    pool = make_pool(num_blocks=4)
    fork(pool, "a", "b")
    with pytest.raises(InsufficientBlocks) as refused:
        pool.allocate("b", 9)  # a copy, and a block more
    assert refused.value.figures["num_required_blocks"] == 2
    assert pool.table("b") == [1, 2]
    pool.free("a")
    assert pool.allocate("b", 9).replaced is None


def test_what_must_fit_as_a_whole_has_the_copy_counted() -> None:
    pool = make_pool(num_blocks=4)
    fork(pool, "a", "b")
    with pytest.raises(InsufficientBlocks):
        pool.allocate("b", 9, max_new_tokens=1, full_sequence_must_fit=True)
    assert pool.allocate("b", 8, full_sequence_must_fit=True).copies == [[2, 3]]


def test_tokens_in_common_are_not_taken_back() -> None:
    pool = WorkedPool(FULL, publish=Publish.ON_COMMIT)
    pool.allocate("a", 6)
    fork(pool, "a", "b")
    for name in "ab":
        with pytest.raises(InvalidRequest, match="cannot go back"):
            pool.allocate(name, 6, num_computed_tokens=5)
    pool.allocate("b", 8)
    assert pool.allocate("b", 8, num_computed_tokens=6).num_new_tokens == 2


def test_a_full_block_in_common_is_published_by_whoever_comes_first() -> None:
    pool = WorkedPool(FULL, publish=Publish.ON_COMMIT)
    pool.allocate("a", 9)
    fork(pool, "a", "b", "c")
    assert [pool.commit("b", 4), pool.commit("a", 8), pool.commit("c", 8)] == [1, 1, 0]
    assert pool.find(9) == (8, [[1, 2]])
    pool.free("a", "b", "c")
    assert pool.pool.audit().problems == []


def test_hashes_of_tokens_in_common_are_told_before_or_never() -> None:
    pool = WorkedPool(FULL)
    pool.allocate("a", 9, num_guesses=5)  # of two full blocks, the hash of one
    with pytest.raises(InvalidRequest, match="of 1 the hashes are told"):
        fork(pool, "a", "b")
    fork(pool, "a", "b", hashes=pool.hashes(1, 9))
    assert pool.find(9) == (8, [[1, 2]])
    pool.allocate("u", 6, num_guesses=6, skip_prefix_cache=True)
    fork(pool, "u", "v")
    for name in "uv":
        with pytest.raises(InvalidRequest, match="not told before"):
            pool.allocate(name, 8)


def test_a_copy_that_was_never_made_is_found_by_nobody() -> None:
    pool = WorkedPool(
        group("full_attention", 8), group("mamba", 8, mamba_cache_mode="align"), hash_block_size=4
    )
    pool.allocate("a", 15, max_new_tokens=14)
    fork(pool, "a", "b")
    reply = pool.allocate("b", 15)
    (copied,) = [block for source, block in reply.copies if source == 2]
    assert (pool.keys(2), pool.keys(copied)) == (["12 tokens"], ["12 tokens"])
    pool.pool.apply(DeleteLease(lease_id=LEASE), 0)
    assert (pool.keys(2), pool.keys(copied)) == (["12 tokens"], [])


def test_states_and_blocks_in_a_circle_are_copied_at_once() -> None:
    states = group("mamba", mamba_cache_mode="none", num_speculative_blocks=1)
    pool = WorkedPool(states, group("circular_buffer"), enable_prefix_caching=False)
    pool.allocate("a", 3)
    assert pool.tables("a") == [[1, 2], [3]]
    reply = fork(pool, "a", "b", "c")
    assert reply.block_ids == [[[4, 5], [6]], [[7, 8], [9]]]
    assert reply.copies == [[1, 4], [2, 5], [3, 6], [1, 7], [2, 8], [3, 9]]
    assert pool.allocate("b", 4).copies == []


def test_what_the_encoder_wrote_is_shared() -> None:
    pool = WorkedPool(group("cross_attention"), FULL, enable_prefix_caching=False)
    pool.allocate("a", 4, num_encoder_tokens=7)
    assert fork(pool, "a", "b").block_ids == [[[1, 2], [3]]]
    assert pool.allocate("b", 5).copies == []


def test_forks_that_lack_blocks_for_their_states_are_refused_as_a_whole() -> None:
    pool = WorkedPool(group("circular_buffer"), FULL, num_blocks=4, enable_prefix_caching=False)
    pool.allocate("a", 3)
    with pytest.raises(InsufficientBlocks) as refused:
        fork(pool, "a", "b", "c")
    assert refused.value.figures["num_required_blocks"] == 2
    fork(pool, "a", "b")


def test_a_running_state_that_others_find_stays_the_parents() -> None:
    pool = WorkedPool(
        group("full_attention", 8), group("mamba", 8, mamba_cache_mode="align"), hash_block_size=4
    )
    pool.allocate("a", 15, max_new_tokens=12)
    assert (pool.tables("a"), pool.keys(3)) == ([[1, 2], [0, 3]], ["12 tokens"])
    reply = fork(pool, "a", "b")
    assert (reply.block_ids, reply.copies) == ([[[1, 2], [0, 4]]], [[3, 4]])
    assert pool.allocate("b", 15).copies == [[2, 5]]
    moved = pool.allocate("a", 15)
    assert moved.copies == [[3, 6]]
    assert (pool.keys(6), pool.keys(4)) == (["12 tokens"], [])


def test_each_fork_leaves_its_window_by_itself() -> None:
    pool = WorkedPool(group("sliding_window", sliding_window=4), publish=Publish.ON_ALLOCATE)
    pool.allocate("a", 6)
    fork(pool, "a", "b")
    pool.allocate("a", 10)
    pool.allocate("a", 10)
    assert (pool.table("a"), pool.table("b")) == ([0, 3, 4], [1, 2])
    assert pool.pool.store.reference_counts[1] == 1


def test_forks_are_shared_by_a_pool_that_was_restored() -> None:
    pool = make_pool()
    fork(pool, "a", "b")
    restarted(pool)
    assert pool.allocate("b", 7).copies == [[2, 3]]
    restarted(pool)
    assert pool.allocate("a", 7).copies == []


def test_on_the_host_a_sequence_is_forked_where_its_block_is_full() -> None:
    host = group("full_attention", is_host_resident=True)
    pool = WorkedPool(FULL, host, num_host_blocks=8)
    pool.allocate("a", 6)
    with pytest.raises(InvalidRequest, match="on the host"):
        fork(pool, "a", "b")
    pool.allocate("a", 8)
    assert fork(pool, "a", "b").block_ids == [[[1, 2], [1, 2]]]
    circle = WorkedPool(FULL, group("circular_buffer", is_host_resident=True), num_host_blocks=8)
    circle.allocate("a", 8)
    with pytest.raises(InvalidRequest, match="on the host"):
        fork(circle, "a", "b")


@pytest.mark.parametrize(
    ("parent", "names", "error"),
    [
        ("nobody", ["b"], SequenceNotFound),
        ("a", [], InvalidRequest),
        ("a", ["b", "b"], InvalidRequest),
        ("a", ["a"], InvalidRequest),
        ("a", [f"n{number}" for number in range(129)], InvalidRequest),
        ("a", ["b", "elsewhere"], SequenceExistsElsewhere),
    ],
)
def test_ids_are_new_and_not_too_many(parent: str, names: list[str], error: type[BlockyardError]) -> None:
    pool = make_pool()
    other = pool.another_lease()
    pool.allocate("elsewhere", 4, lease=other)
    before = pool.pool.snapshot()
    with pytest.raises(error):
        fork(pool, parent, *names)
    assert pool.pool.snapshot() == before


def test_a_fork_of_a_fork_that_is_admitted_under_a_used_id_begins_anew() -> None:
    pool = make_pool()
    fork(pool, "a", "b")
    pool.free("b")
    admission = Admission(sequence_id=SequenceId("b"), num_tokens=6)
    reply = pool.pool.apply(Step(lease_id=LEASE, admit=[admission]), 0)
    assert isinstance(reply, Stepped)
    assert pool.table("b") == [3, 4]


def test_tables_of_one_calls_forks_are_no_longer_in_all_than_a_server_can_tell() -> None:
    """Entries of recurrent layers' tables take no blocks, so that the pool's size bounds nothing."""
    pool = WorkedPool(group("mamba", mamba_cache_mode="align"))
    admission = Admission(sequence_id=SequenceId("a"), num_tokens=2**22)
    pool.pool.apply(Step(lease_id=LEASE, admit=[admission]), 0)
    names = [SequenceId(f"n{number}") for number in range(9)]
    with pytest.raises(InvalidRequest, match="entries"):
        pool.pool.apply(Fork(lease_id=LEASE, sequence_id=SequenceId("a"), new_sequence_ids=names), 0)
    pool.pool.apply(Fork(lease_id=LEASE, sequence_id=SequenceId("a"), new_sequence_ids=names[:8]), 0)
