"""Streams of server-sent events: paced, ended by the server's stop, and no burden on anybody else."""

import asyncio

import pytest
from starlette.types import Message

from blockyard.core.errors import Overloaded
from blockyard.server.sse import EventStream, Streams, message


class Counting:
    """A feed of ``num_messages`` messages, after which nothing more happens."""

    def __init__(self, num_messages: int) -> None:
        self.num_left = num_messages
        self.is_closed = False

    async def changed(self) -> None:
        if not self.num_left:
            await asyncio.Event().wait()

    def read(self) -> bytes:
        if not self.num_left:
            return b""
        self.num_left -= 1
        return message("count", str(self.num_left).encode())

    def close(self) -> None:
        self.is_closed = True


async def stream(feed: Counting, streams: Streams, *, hang_up_after_s: float = 60) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(hang_up_after_s)
        return {"type": "http.disconnect"}

    async def send(part: Message) -> None:
        sent.append(part)
        if feed.num_left == 0 and len(sent) > 3:
            streams.stop()

    await EventStream(feed, streams)({"type": "http"}, receive, send)
    return sent


def test_it_sends_what_the_feed_has_and_ends_when_the_server_stops() -> None:
    feed = Counting(2)
    sent = asyncio.run(stream(feed, Streams(1)))
    assert sent[0]["status"] == 200
    assert [part["body"] for part in sent[1:]] == [
        b"retry: 1000\n\n",
        b"event: count\ndata: 1\n\n",
        b"event: count\ndata: 0\n\n",
        b"",
    ]
    assert not sent[-1]["more_body"]
    assert feed.is_closed


def test_it_ends_when_the_caller_hangs_up() -> None:
    feed, streams = Counting(0), Streams(1)
    asyncio.run(stream(feed, streams, hang_up_after_s=0.01))
    assert feed.is_closed
    assert streams.num_open == 0


def test_more_than_may_be_open_are_refused() -> None:
    streams = Streams(1)
    streams.check()
    with streams.opened({}), pytest.raises(Overloaded) as refused:
        streams.check()
    assert refused.value.figures == {"retry_after_ms": 1_000}
