"""Whoever follows a pool by its events has its prefix index in the end, whatever got lost on the way."""

import random
from collections import Counter

import pytest

from blockyard.client.kv_events import AllBlocksCleared, BlockStored, KvBatch, KvSnapshot
from blockyard.client.kv_mirror import KvMirror
from events.followed_pool import FollowedPool

NUM_RUNS = 1_000
NUM_ACTS = 40


def follow(seed: int, happened: Counter[str]) -> None:
    """A mirror that begins late, of a server that may start again, over a line that loses batches."""
    draw = random.Random(seed)
    followed = FollowedPool(draw)
    mirror = followed.mirror
    loss = draw.choice([0.0, 0.1, 0.5])
    begin = draw.randrange(NUM_ACTS)
    restart_at = draw.choice([None, draw.randrange(NUM_ACTS)])
    on_its_way: list[KvBatch] = []
    for act in range(NUM_ACTS):
        if act == restart_at:
            forgets = draw.random() < 0.3
            followed.restart(forgets=forgets)
            happened["forgot" if forgets else "restarted"] += 1
        for batch in followed.act():
            happened["events"] += len(batch.events)
            happened["cleared"] += batch.events[0] == AllBlocksCleared()
            if draw.random() < loss:
                happened["lost"] += 1
            else:
                on_its_way.append(batch)
        if act >= begin and draw.random() < 0.5:
            for batch in on_its_way:
                mirror.receive(batch)
            if on_its_way and loss == 0 and restart_at is None:
                assert followed.mirrored() == followed.found(), seed
                assert mirror.num_snapshots == 1
                happened["equal on the way"] += 1
            on_its_way = []
    mirror.catch_up()
    assert followed.mirrored() == followed.found(), seed
    happened["snapshots"] += mirror.num_snapshots
    happened["more than one snapshot"] += mirror.num_snapshots > 1
    happened["found"] += bool(followed.found())


def test_a_mirror_is_equal_in_the_end_in_a_thousand_runs() -> None:
    happened: Counter[str] = Counter()
    for seed in range(NUM_RUNS):
        follow(seed, happened)
    assert happened["found"] > NUM_RUNS / 2
    for what in (
        *("events", "cleared", "lost", "restarted", "forgot", "equal on the way"),
        *("snapshots", "more than one snapshot"),
    ):
        assert happened[what] >= 50, f"{what}: {happened[what]}"


class Careless(KvMirror):
    """Takes whatever comes for the next batch."""

    def receive(self, batch: KvBatch) -> None:
        if self.next_number is None:
            self.catch_up()
        self.next_number = batch.number
        self.stream_id = batch.stream_id
        super().receive(batch)

    def catch_up(self) -> None:
        if self.next_number is None:
            super().catch_up()


def test_a_mirror_that_does_not_look_at_numbers_is_found_out() -> None:
    def follow_carelessly(seed: int) -> bool:
        draw = random.Random(seed)
        followed = FollowedPool(draw)
        followed.mirror.__class__ = Careless
        for act in range(NUM_ACTS):
            for batch in followed.act():
                if act == 0 or draw.random() > 0.5:
                    followed.mirror.receive(batch)
        followed.mirror.catch_up()
        return followed.mirrored() == followed.found()

    assert not all(map(follow_carelessly, range(20)))


def stored(*hashes: int) -> BlockStored:
    return BlockStored(block_hashes=list(hashes), group_idx=0)


def batch(number: int, *hashes: int, stream_id: str | None = "a") -> KvBatch:
    return KvBatch(number=number, stream_id=stream_id, ts=0.0, events=[stored(*hashes)])


class Server:
    """Has these batches, and a snapshot that is ahead of none of them."""

    def __init__(self, *batches: KvBatch) -> None:
        self.batches = list(batches)
        self.num_snapshots = 0
        self.asked: list[int] = []

    def mirror(self) -> KvMirror:
        return KvMirror(self.snapshot, self.missed)

    def snapshot(self) -> KvSnapshot:
        self.num_snapshots += 1
        last = self.batches[-1]
        events = [event for each in self.batches for event in each.events]
        return KvSnapshot(number=last.number + 1, stream_id=last.stream_id, topic="", events=events)

    def missed(self, number: int) -> list[KvBatch]:
        self.asked.append(number)
        return [each for each in self.batches if each.number >= number]


def test_what_a_snapshot_has_already_is_passed_over() -> None:
    server = Server(batch(0, 1), batch(1, 2))
    mirror = server.mirror()
    mirror.catch_up()
    mirror.receive(batch(0, 1))
    mirror.receive(batch(1, 2))
    mirror.receive(batch(2, 3))
    assert (mirror.next_number, server.num_snapshots, server.asked) == (3, 1, [])
    assert all(map(mirror.has, (1, 2, 3)))
    assert not mirror.has(4)


def test_what_was_missed_is_asked_for_with_the_last_that_is_known() -> None:
    server = Server(batch(0, 1))
    mirror = server.mirror()
    mirror.catch_up()
    server.batches += [batch(1, 2), batch(2, 3)]
    mirror.receive(batch(2, 3))
    assert (mirror.next_number, server.num_snapshots, server.asked) == (3, 1, [0])
    assert mirror.has(2)


@pytest.mark.parametrize("stream_id", ["b", None])
def test_another_stream_is_read_anew(stream_id: str | None) -> None:
    server = Server(batch(0, 1))
    mirror = server.mirror()
    mirror.catch_up()
    server.batches = [batch(0, 9, stream_id=stream_id)]
    mirror.receive(batch(0, 9, stream_id=stream_id))
    assert (mirror.has(1), mirror.has(9), server.num_snapshots) == (False, True, 2)


def test_catching_up_finds_out_that_the_stream_is_another() -> None:
    server = Server(batch(0, 1))
    mirror = server.mirror()
    mirror.catch_up()
    server.batches = [batch(0, 9, stream_id="b")]
    mirror.catch_up()
    assert (mirror.has(1), mirror.has(9)) == (False, True)


def test_batches_of_an_earlier_start_are_passed_over_without_reading_anew() -> None:
    server = Server(batch(0, 1))
    mirror = server.mirror()
    mirror.catch_up()
    server.batches = [batch(0, 9, stream_id="b")]
    for number in range(5, 50):
        mirror.receive(batch(number, 1, stream_id="a"))
    assert (mirror.stream_id, server.num_snapshots) == ("b", 2)
    for number in range(5):
        mirror.receive(batch(number, 7, stream_id="another pool's"))
    assert server.num_snapshots == 3
    assert not mirror.has(7)
    mirror.receive(batch(1, 8, stream_id="b"))
    assert mirror.has(8)
