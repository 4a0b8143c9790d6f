"""Server-sent events: answers that go on for ever.

A `Feed` says when there is something new, and gives it in chunks. Each subscriber has one of its own and is
written to by a task of its own, so that a slow one waits for itself alone: what it has not read yet stays
with its feed. Streams end when the caller hangs up, when it may not read on, and when the server stops.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from fastapi.sse import KEEPALIVE_COMMENT
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from blockyard.core.errors import Overloaded

EVENT_STREAM = "text/event-stream"
_EVENT_STREAM = EVENT_STREAM.encode()
RECONNECT_MS = 1_000
"""How long a browser waits before it comes back."""
KEEP_ALIVE_S = 15.0
"""Silence after which a comment is sent: a connection that is gone is then found out."""
RETRY_AFTER_MS = 1_000

RECONNECT = f"retry: {RECONNECT_MS}\n\n".encode()


def message(event: str, data: bytes, identity: str | None = None) -> bytes:
    """One message whose ``data`` is a line: a tenth of what FastAPI takes for any text."""
    named = b"event: %b\ndata: %b\n" % (event.encode(), data)
    return named + (b"\n" if identity is None else b"id: %b\n\n" % identity.encode())


def is_stream(start: Message) -> bool:
    """Whether an answer that starts so goes on for ever."""
    return any(
        name == b"content-type" and value.startswith(_EVENT_STREAM)
        for name, value in start.get("headers", ())
    )


class Feed(Protocol):
    """What one subscriber is told."""

    async def changed(self) -> None:
        """Wait until `read` may have something new, not at each small thing. May be cancelled."""
        ...

    def read(self) -> bytes | None:
        """The next messages; empty if there is nothing new for now, None if there will be nothing more."""
        ...

    def close(self) -> None:
        """The subscriber is gone."""
        ...


@dataclass(frozen=True, slots=True)
class _Open:
    """A stream, by the scope of its request."""

    scope: Scope
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Streams:
    """All open streams.

    Args:
        max_streams: More are refused.
        may_go_on: Whether the caller whose request has this ASGI scope may still read.
    """

    def __init__(self, max_streams: int, may_go_on: Callable[[Scope], bool] = lambda _: True) -> None:
        self._max_streams = max_streams
        self._may_go_on = may_go_on
        self._is_stopped = False
        self._open: dict[int, _Open] = {}

    def stop(self) -> None:
        """End all of them, and take no more."""
        self._is_stopped = True
        for stream in self._open.values():
            stream.ended.set()

    def review(self) -> None:
        """End those whose callers may not read on."""
        for stream in self._open.values():
            if not self._may_go_on(stream.scope):
                stream.ended.set()

    def check(self) -> None:
        """Refuse one more, where there are as many as may be.

        Raises:
            Overloaded: There are.
        """
        if self.num_open >= self._max_streams:
            raise Overloaded(
                f"{self._max_streams} streams are open already (--max-subscribers): close some",
                {"retry_after_ms": RETRY_AFTER_MS},
            )

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[asyncio.Event]:
        """One of them, the request's of ``scope``, from here to the end of the block.

        Yields:
            What is set when it is to end.
        """
        stream = self._open[id(scope)] = _Open(scope)
        if self._is_stopped or not self._may_go_on(scope):
            stream.ended.set()
        try:
            yield stream.ended
        finally:
            del self._open[id(scope)]

    def has(self, scope: Scope) -> bool:
        """Whether the request of ``scope`` is answered by one of them."""
        stream = self._open.get(id(scope))
        return stream is not None and stream.scope is scope

    @property
    def num_open(self) -> int:
        """How many there are."""
        return len(self._open)


class EventStream(Response):
    """Sends what ``feed`` has, from now on.

    Args:
        feed: This subscriber's own; closed at the end.
        streams: Counts this one among them, and ends it.
    """

    def __init__(self, feed: Feed, streams: Streams) -> None:
        super().__init__(
            media_type=EVENT_STREAM, headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._feed = feed
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The whole stream."""
        try:
            with self._streams.opened(scope) as ended:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                sending = asyncio.create_task(self._send(send))
                ends = [asyncio.create_task(ended.wait()), asyncio.create_task(hung_up(receive))]
                try:
                    await asyncio.wait([sending, *ends], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (sending, *ends):
                        task.cancel()
                    outcomes = await asyncio.gather(sending, *ends, return_exceptions=True)
                for outcome in outcomes:
                    if isinstance(outcome, Exception):
                        raise outcome
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._feed.close()

    async def _send(self, send: Send) -> None:
        chunk: bytes | None = RECONNECT
        while chunk is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(0)  # a reader that keeps up is not to keep others from their turn
            chunk = await self._next()

    async def _next(self) -> bytes | None:
        """What comes next, or a sign of life."""
        while (chunk := self._feed.read()) == b"":
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await self._feed.changed()
            except TimeoutError:
                return KEEPALIVE_COMMENT
        return chunk


async def hung_up(receive: Receive) -> None:
    """Wait until the caller has."""
    while (await receive())["type"] != "http.disconnect":
        pass
