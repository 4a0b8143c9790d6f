"""A pool as its stream tells of it: the same on every node that has read so far."""

from dataclasses import replace

import pytest

from blockyard.server.cluster.entries import Entry, EntryKind, in_messages
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.reader import Message
from blockyard.server.cluster.stored_snapshot import StoredSnapshot
from blockyard.server.journal.errors import DamagedJournal, NewerJournal
from cluster.streams import REGISTERED, A, B, batch, followed, pool_after

TAKEN = Entry.take_over(A, 1, 0)


def test_whoever_reads_the_stream_has_the_owners_state() -> None:
    pool = followed(TAKEN, batch(1, 0, 3), batch(1, 3, 8), Entry.take_over(B, 2, 8), batch(2, 8, 12))
    assert pool.pool.snapshot() == pool_after(12).snapshot()
    assert (pool.line.number, pool.sequence) == (12, 5)
    assert (pool.ownership, pool.holder, pool.heir) == (2, B, None)


def test_a_pool_that_was_handed_over_has_an_heir_and_no_owner() -> None:
    pool = followed(TAKEN, Entry.hand_over("b", 1, 0))
    assert (pool.holder, pool.heir, pool.ownership) == (None, "b", 1)


def test_a_batch_in_parts_is_done_with_its_last_one() -> None:
    *parts, last = in_messages(batch(1, 0, 9), 100)
    assert len(parts) >= 2
    pool = followed(TAKEN, *parts)
    assert pool.line.number == 0
    followed(last, after=pool)
    assert pool.pool.snapshot() == pool_after(9).snapshot()


def test_a_batch_is_gone_on_with_a_command_at_a_time() -> None:
    pool = followed(TAKEN)
    steps = pool.steps(Message(2, "subject", batch(1, 0, 9).encode(), {}))
    for num_commands in range(1, 10):
        next(steps)
        assert pool.pool.snapshot() == pool_after(num_commands).snapshot()
    assert next(steps, "done") == "done"
    assert (pool.sequence, pool.line.number) == (2, 9)


def test_parts_that_a_dead_owner_has_left_are_none() -> None:
    parts = in_messages(batch(1, 3, 9), 100)[:-1]
    pool = followed(TAKEN, batch(1, 0, 3), *parts, Entry.take_over(B, 2, 3), batch(2, 3, 5))
    assert pool.pool.snapshot() == pool_after(5).snapshot()


@pytest.mark.parametrize(
    "entry", [batch(1, 4, 6), batch(1, 2, 6), batch(2, 3, 6), batch(0, 3, 6)], ids=["gap", "twice", "2", "0"]
)
def test_a_batch_that_does_not_follow_is_damage(entry: Entry) -> None:
    pool = followed(TAKEN, batch(1, 0, 3))
    with pytest.raises(DamagedJournal, match="do not follow"):
        followed(entry, after=pool)


def test_a_missing_message_is_damage() -> None:
    pool = followed(TAKEN)
    with pytest.raises(DamagedJournal, match="message 2 is missing"):
        pool.read(Message(3, "subject", batch(1, 0, 1).encode(), {}))


def test_what_a_later_version_wrote_is_told_apart_from_damage() -> None:
    pool = followed(TAKEN)
    with pytest.raises(NewerJournal, match="format 9"):
        pool.read(Message(2, "subject", b"\x09" + batch(1, 0, 1).encode()[1:], {}))


def test_a_snapshot_and_what_follows_it_are_the_whole_stream() -> None:
    entries = [TAKEN, batch(1, 0, 4), Entry.take_over(B, 2, 4), batch(2, 4, 9)]
    for place in range(1, len(entries)):
        stored = StoredSnapshot.decode(followed(*entries[:place]).snapshot().encode())
        pool = FollowedPool.begin(replace(REGISTERED, snapshot=place), stored)
        followed(*entries[place:], after=pool)
        whole = followed(*entries)
        assert pool.pool.snapshot() == whole.pool.snapshot()
        assert (pool.sequence, pool.line.number, pool.ownership, pool.holder) == (4, 9, 2, B)


def test_a_snapshot_between_the_parts_of_a_batch_is_one_before_them() -> None:
    parts = in_messages(batch(1, 0, 9), 100)
    pool = followed(TAKEN, *parts[:2])
    assert pool.snapshot().sequence == 1
    again = FollowedPool.begin(replace(REGISTERED, snapshot=1), pool.snapshot())
    assert followed(*parts, after=again).pool.snapshot() == pool_after(9).snapshot()


def test_a_snapshot_that_the_registry_names_has_to_be_there() -> None:
    with pytest.raises(DamagedJournal, match="snapshot behind message 5 is missing"):
        FollowedPool.begin(replace(REGISTERED, snapshot=5), None)


def test_a_deleted_pool_is_known_to_be() -> None:
    assert followed(TAKEN, Entry(kind=EntryKind.DELETED, ownership=1, number=0)).is_deleted
