"""One subscriber's server-sent events of a pool: from a snapshot, or from where it left off, and then on.

    connects                                  snapshot, snapshot, ..., batch 7, batch 8, ...
    Last-Event-ID of batch 6                  batch 7, batch 8, ...
    ... which is of another stream, or older
    than what is kept                         as without one
    falls behind further than is kept         snapshot, ... and on

A snapshot comes in parts; only its last message has an id, so that whoever loses it on the way gets it anew.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pydantic_core

from blockyard.server.events.codec import Event
from blockyard.server.events.pool_stream import PoolSnapshot, PoolStream
from blockyard.server.sse import message

BLOCKS_A_PART = 512
"""Events of a snapshot's part have together about as many blocks: a millisecond's work."""
BATCHES_A_READ = 256

_NUMBER = re.compile(r"-1|[0-9]{1,19}")


class EventFeed:
    """Follows ``stream`` behind the message of ``last_event_id``; None: from a snapshot."""

    def __init__(self, stream: PoolStream, last_event_id: str | None) -> None:
        self._stream = stream
        self._parts: Iterator[bytes] = iter(())
        self._snapshot: PoolSnapshot | None = None
        self._number = -1  # which no stream has
        if last_event_id is not None:
            stream_id, _, number = last_event_id.partition(":")
            if stream_id == stream.stream_id and _NUMBER.fullmatch(number):
                self._number = int(number) + 1

    async def changed(self) -> None:
        """See `Feed`."""
        await self._stream.changed()

    def read(self) -> bytes | None:
        """See `Feed`."""
        stream = self._stream
        stream.followers[self] = self._number if stream.has(self._number) else stream.next_number
        if self._snapshot is not None:
            if stream.next_number < self._snapshot.number:
                return b""  # it is not durable yet
            part = next(self._parts, None)
            if part is not None:
                return part
            self._snapshot = None
        if not stream.has(self._number):
            self._snapshot = stream.snapshot()
            self._parts = parts(stream, self._snapshot)
            self._number = self._snapshot.number
            return self.read()
        batches = stream.since(self._number, BATCHES_A_READ)
        if not batches and stream.is_closed:
            return None
        self._number += len(batches)
        stream.followers[self] = self._number
        return b"".join(map(stream.message, batches))

    def close(self) -> None:
        """See `Feed`."""
        self._stream.followers.pop(self, None)


def parts(stream: PoolStream, snapshot: PoolSnapshot) -> Iterator[bytes]:
    """The messages of ``snapshot``, at least one."""
    head = stream.codec.head(snapshot.number, snapshot.now_ms)
    events = stream.codec.snapshot_events(snapshot.stored, json=True)
    part, is_last = 0, False
    while not is_last:
        found = _some(events)
        is_last = not found
        body: dict[str, Any] = {**head, "part": part, "is_last": is_last, "events": found}
        yield message(
            data_str=pydantic_core.to_json(body).decode(),
            event="snapshot",
            id=f"{stream.stream_id}:{snapshot.number - 1}" if is_last else None,
        )
        part += 1


def _some(events: Iterator[Event]) -> list[Event]:
    """The next events, of about `BLOCKS_A_PART` blocks."""
    found: list[Event] = []
    num_blocks = 0
    while num_blocks < BLOCKS_A_PART and (more := list(islice(events, 1))):
        found += more
        num_blocks += len(more[0]["block_hashes"])
    return found
