"""What one subscriber to a pool's events is sent, whenever it comes and however slow it is."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from blockyard.core.config import EventsConfig
from blockyard.core.kv_batch import AllBlocksCleared, Batch
from blockyard.server.events.feed import EventFeed
from blockyard.server.events.pool_stream import PoolStream
from events.sse_reader import Message, messages_in
from events.worked_batches import FULL, WorkedPool

QUIET_S = 0.3


class Followed:
    """A pool and its stream; ``num_kept`` batches are kept."""

    def __init__(self, num_kept: int = 100) -> None:
        self.worked = WorkedPool(FULL, events=EventsConfig())
        self.stream = PoolStream(self.worked.pool, "topic", num_kept)
        self._num_prompts = 0

    def happen(self, times: int = 1) -> None:
        """A prompt is cached, for want of blocks mostly in place of another: a batch or two, not told yet."""
        for _ in range(times):
            first = 100 * self._num_prompts
            self.worked.run(f"s{first}", 9, token_ids=list(range(first, first + 9)))
            self._num_prompts += 1

    def publish(self) -> None:
        batches = self.stream.take()
        if batches:
            self.stream.publish(batches)

    def feed(self, last_event_id: str | None = None) -> EventFeed:
        return EventFeed(self.stream, last_event_id, asyncio.Lock())


async def read_all(feed: EventFeed) -> list[Message]:
    """What there is to be read, until nothing comes for longer than a tick; or to the end."""
    text = b""
    while (chunk := feed.read()) is not None:
        text += chunk
        if not chunk:
            try:
                async with asyncio.timeout(QUIET_S):
                    await feed.changed()
            except TimeoutError:
                break
    return messages_in(text)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is run by an event loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def numbers(messages: list[Message]) -> list[int]:
    assert all(message.kind == "batch" for message in messages)
    return [message.data["sequence_number"] for message in messages]


@in_a_loop
async def test_it_begins_with_a_snapshot_and_goes_on_behind_it() -> None:
    followed = Followed()
    followed.happen(3)
    followed.publish()
    feed = followed.feed()
    snapshot = await read_all(feed)
    assert {message.kind for message in snapshot} == {"snapshot"}
    events = [event for message in snapshot for event in message.data["events"]]
    told = followed.worked.pool.events
    assert told is not None
    hashes = [each for event in events for each in event["block_hashes"]]
    assert hashes == [each.hex() for each in told.stored[0]]
    next_number = followed.stream.next_number
    assert {message.data["sequence_number"] for message in snapshot} == {next_number}
    followed.happen()
    followed.publish()
    assert numbers(await read_all(feed))[0] == next_number
    assert await read_all(feed) == []


@in_a_loop
async def test_a_part_that_is_made_is_sent_even_if_the_wait_for_it_is_cancelled() -> None:
    followed = Followed()
    followed.happen(2)
    followed.publish()
    feed = followed.feed()
    assert feed.read() == b""
    waiting = asyncio.create_task(feed.changed())
    await asyncio.sleep(0)  # it has made a part, and gives way
    waiting.cancel()
    parts = [message.data["part"] for message in await read_all(feed)]
    assert parts == list(range(len(parts)))


@in_a_loop
async def test_only_the_last_message_of_a_snapshot_has_an_id() -> None:
    followed = Followed()
    followed.happen(2)
    followed.publish()
    *parts, last = await read_all(followed.feed())
    assert parts
    assert [part.identity for part in parts] == [None] * len(parts)
    assert [part.data["is_last"] for part in (*parts, last)] == [False] * len(parts) + [True]
    assert last.identity == f"{followed.stream.stream_id}:{followed.stream.next_number - 1}"


@in_a_loop
async def test_of_an_empty_pool_there_is_an_empty_snapshot_to_come_back_with() -> None:
    followed = Followed()
    (only,) = await read_all(followed.feed())
    assert (only.data["events"], only.data["is_last"]) == ([], True)
    followed.happen()
    followed.publish()
    assert numbers(await read_all(followed.feed(only.identity)))[0] == 0


@in_a_loop
async def test_whoever_comes_back_goes_on_where_it_was() -> None:
    followed = Followed()
    feed = followed.feed()
    await read_all(feed)
    followed.happen(2)
    followed.publish()
    first, *_ = await read_all(feed)
    followed.happen(2)
    followed.publish()
    again = numbers(await read_all(followed.feed(first.identity)))
    assert again == list(range(first.data["sequence_number"] + 1, followed.stream.next_number))


@in_a_loop
async def test_an_id_of_another_stream_or_of_nothing_begins_anew() -> None:
    followed = Followed()
    followed.happen()
    followed.publish()
    stream_id = followed.stream.stream_id
    for identity in ("0123:0", f"{stream_id}:99", f"{stream_id}:x", f"{stream_id}:-2", "", "\u0661", ":"):
        assert (await read_all(followed.feed(identity)))[0].kind == "snapshot"


@in_a_loop
async def test_whoever_falls_behind_what_is_kept_begins_anew() -> None:
    followed = Followed(num_kept=3)
    feed = followed.feed()
    await read_all(feed)
    followed.happen(10)
    followed.publish()
    messages = await read_all(feed)
    assert messages[0].kind == "snapshot"
    assert messages[0].data["sequence_number"] == followed.stream.next_number
    assert (await read_all(followed.feed(f"{followed.stream.stream_id}:0")))[0].kind == "snapshot"


@in_a_loop
async def test_whoever_is_slow_over_a_snapshot_gets_no_gap_behind_it() -> None:
    followed = Followed(num_kept=3)
    followed.happen()
    followed.publish()
    feed = followed.feed()
    feed.read()
    followed.happen(10)
    followed.publish()
    found = await read_all(feed)
    begun = [message for message in found if message.kind == "snapshot" and message.data["part"] == 0]
    assert [message.data["sequence_number"] for message in begun] == [1, followed.stream.next_number]


@in_a_loop
async def test_a_snapshot_waits_until_it_is_durable() -> None:
    followed = Followed()
    followed.happen()
    feed = followed.feed()
    assert await read_all(feed) == []
    followed.publish()
    assert (await read_all(feed))[0].kind == "snapshot"


@in_a_loop
async def test_the_end_of_a_pool_is_the_end_of_the_stream() -> None:
    followed = Followed()
    feed = followed.feed()
    await read_all(feed)
    followed.stream.publish([followed.stream.ending()])
    followed.stream.close()
    (last,) = await read_all(feed)
    assert [event["type"] for event in last.data["events"]] == ["AllBlocksCleared"]
    assert feed.read() is None


@in_a_loop
async def test_the_end_of_a_pool_ends_a_stream_whose_snapshot_never_became_durable() -> None:
    followed = Followed()
    followed.happen()
    feed = followed.feed()
    assert feed.read() == b""
    followed.stream.close()
    assert feed.read() is None


@in_a_loop
async def test_the_lag_is_that_of_the_slowest() -> None:
    followed = Followed()
    slow, quick = followed.feed(), followed.feed()
    await read_all(slow)
    await read_all(quick)
    assert followed.stream.lag == 0
    followed.happen(3)
    followed.publish()
    await read_all(quick)
    assert followed.stream.lag == followed.stream.next_number > 0
    slow.close()
    assert followed.stream.lag == 0


@in_a_loop
async def test_batches_that_a_replay_made_are_kept_for_whoever_missed_them() -> None:
    worked = WorkedPool(FULL, events=EventsConfig())
    worked.run("s", 9, token_ids=list(range(9)))
    stream = PoolStream(worked.pool, "topic")
    assert stream.next_number == 1
    assert [batch.number for batch in stream.since(0)] == [0]
    stream.publish([Batch(1, 0, [AllBlocksCleared()])])
    assert [batch.number for batch in stream.since(0)] == [0, 1]
    assert [batch.number for batch in stream.since(1)] == [1]


@in_a_loop
async def test_a_long_way_behind_is_caught_up_with_in_pieces() -> None:
    followed = Followed(num_kept=5_000)
    first = followed.feed()
    (begin,) = await read_all(first)
    followed.happen(1_500)
    followed.publish()
    feed = followed.feed(begin.identity)
    num_pieces, text = 0, b""
    while followed.stream.next_number > len(numbers(messages_in(text))):
        chunk = feed.read()
        assert chunk is not None
        num_pieces += chunk != b""
        text += chunk
        if not chunk:
            await feed.changed()
    assert numbers(messages_in(text)) == list(range(followed.stream.next_number))
    assert num_pieces >= 3
