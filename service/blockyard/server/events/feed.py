"""One subscriber's server-sent events of a pool: from a snapshot, or from where it left off, and then on.

    connects                                  snapshot, snapshot, ..., batch 7, batch 8, ...
    Last-Event-ID of batch 6                  batch 7, batch 8, ...
    ... which is of another stream, or older
    than what is kept                         as without one
    falls behind further than is kept         snapshot, ... and on

A snapshot comes in parts; only its last message has an id, so that whoever loses it on the way gets it anew.
One part, or piece of what came since, is written at a time, whoever wants it: calls wait for one at most.
"""

import asyncio
import re
from collections.abc import Iterator
from itertools import chain

import pydantic_core

from blockyard.server.events.pool_stream import KvSnapshot, PoolStream
from blockyard.server.sse import message

_NUMBER = re.compile(r"-1|[0-9]{1,19}")


class EventFeed:
    """Follows ``stream``.

    Args:
        stream: The pool's.
        last_event_id: Of the message to go on behind; None: from a snapshot.
        turn: Held while something is written, by whoever writes.
    """

    def __init__(self, stream: PoolStream, last_event_id: str | None, turn: asyncio.Lock) -> None:
        self._stream = stream
        self._turn = turn
        self._snapshot: KvSnapshot | None = None
        self._parts: Iterator[bytes] = iter(())
        self._part = b""
        self._number = -1  # which no stream has
        if last_event_id is not None:
            stream_id, _, number = last_event_id.partition(":")
            if stream_id == stream.stream_id and _NUMBER.fullmatch(number):
                self._number = int(number) + 1

    async def changed(self) -> None:
        """See `Feed`."""
        stream = self._stream
        if self._snapshot is None and not stream.has_text(self._number):
            async with self._turn:
                if not stream.has_text(self._number):  # by now others may have written it
                    stream.read(self._number)  # which keeps it
                    await asyncio.sleep(0)
            return
        if self._snapshot is None or not self._is_durable(self._snapshot):
            await stream.changed()
            return
        async with self._turn:
            part = next(self._parts, None)
            if part is None:
                self._snapshot = None
            else:
                self._part = part
            await asyncio.sleep(0)  # what is here is kept, even if this is cancelled

    def read(self) -> bytes | None:
        """See `Feed`."""
        stream = self._stream
        if self._snapshot is None and not stream.has(self._number):
            self._snapshot = stream.snapshot()
            self._parts = parts(stream, self._snapshot)
            self._number = self._snapshot.number
        if self._snapshot is not None:
            if stream.is_closed and not self._is_durable(self._snapshot):
                return None  # it never will be
            stream.followers[self] = min(self._number, stream.next_number)
            part, self._part = self._part, b""
            return part
        if not stream.has_text(self._number):
            stream.followers[self] = self._number
            return b""  # it is written in turn
        self._number, text = stream.read(self._number)
        stream.followers[self] = self._number
        return None if not text and stream.is_closed else text

    def close(self) -> None:
        """See `Feed`."""
        self._stream.followers.pop(self, None)

    def _is_durable(self, snapshot: KvSnapshot) -> bool:
        return self._stream.next_number >= snapshot.number


def parts(stream: PoolStream, snapshot: KvSnapshot) -> Iterator[bytes]:
    """The messages of ``snapshot``, at least one."""
    head = stream.codec.head(snapshot.number, snapshot.now_ms)
    found = stream.codec.snapshot_parts(snapshot.stored, json=True)
    for part, events in enumerate(chain(found, [[]])):  # the last one says that it is
        is_last = not events
        data = pydantic_core.to_json({**head, "part": part, "is_last": is_last, "events": events})
        identity = f"{stream.stream_id}:{snapshot.number - 1}" if is_last else None
        yield message("snapshot", data, identity)
