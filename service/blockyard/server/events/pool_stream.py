"""One pool's events, once they are durable: the last are kept, and everyone reads at their own pace."""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from blockyard.core.kv_events import MAX_BATCHES, AllBlocksCleared, Batch, KvEvents, StoredBlock
from blockyard.core.pool import Pool
from blockyard.server.events.codec import EventCodec
from blockyard.server.sse import message


class PublishedBatch:
    """A batch and what is written of it, made once, when the first one asks."""

    def __init__(self, batch: Batch, codec: EventCodec) -> None:
        self._batch = batch
        self._codec = codec

    @property
    def number(self) -> int:
        """Of the batch."""
        return self._batch.number

    @cached_property
    def payload(self) -> bytes:
        """For ZeroMQ."""
        return self._codec.msgpack(self._batch)

    @cached_property
    def server_sent(self) -> bytes:
        """As a server-sent event."""
        identity = f"{self._codec.stream_id}:{self.number}"
        return message(data_str=self._codec.json(self._batch).decode(), event="batch", id=identity)


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """All that a pool has stored after the batch before ``number``."""

    number: int
    now_ms: int
    stored: Sequence[Sequence[StoredBlock]]


class PoolStream:
    """The events of a pool from here on, under an id of its own.

    Args:
        pool: The pool, which has events. Batches that wait in it are the first ones.
        topic: Under which they are sent, unless the pool has one of its own.
        max_batches: Of those published, how many are kept.

    Attributes:
        stream_id: Another one after each start: what follows it may be something else than what was there.
        next_number: Of the batch that is published next; those before it are durable and told.
        is_closed: Whether the pool is gone, and nothing more will come.
        followers: Numbers of the batches that those who follow want next, by whoever follows.
    """

    def __init__(self, pool: Pool, topic: str, max_batches: int = MAX_BATCHES) -> None:
        assert pool.events is not None
        assert pool.config.events is not None
        self.topic = pool.config.events.topic if pool.config.events.topic is not None else topic
        self.stream_id = secrets.token_hex(8)
        self.codec = EventCodec(pool.config, self.stream_id)
        self.is_closed = False
        self.followers: dict[object, int] = {}
        self._pool = pool
        self._events: KvEvents = pool.events
        earlier = self._events.take()
        self.next_number = self._events.next_number
        self._buffer: deque[PublishedBatch] = deque(
            (PublishedBatch(batch, self.codec) for batch in earlier), maxlen=max_batches
        )
        self._news: asyncio.Future[None] | None = None

    @property
    def lag(self) -> int:
        """How many batches the slowest of those who follow has yet to read."""
        return max((self.next_number - number for number in list(self.followers.values())), default=0)

    def take(self) -> list[Batch]:
        """What the pool has done since; to be published once it is durable."""
        return self._events.take()

    def ending(self) -> Batch:
        """The last batch of a pool that is gone."""
        return Batch(self._events.next_number, self._pool.now_ms, [AllBlocksCleared()])

    def publish(self, batches: Iterable[Batch]) -> list[PublishedBatch]:
        """Tell of ``batches``, which are durable and follow those before."""
        published = [PublishedBatch(batch, self.codec) for batch in batches]
        self._buffer.extend(published)
        self.next_number = published[-1].number + 1
        self._wake()
        return published

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        self._wake()

    def since(self, number: int, at_most: int = MAX_BATCHES) -> list[PublishedBatch]:
        """Batches from ``number`` on, or from the oldest that is kept."""
        first = self._buffer[0].number if self._buffer else self.next_number
        skipped = min(max(number - first, 0), len(self._buffer))
        return list(islice(self._buffer, skipped, skipped + at_most))

    def has(self, number: int) -> bool:
        """Whether all batches from ``number`` on are kept, none of them included."""
        first = self._buffer[0].number if self._buffer else self.next_number
        return first <= number <= self.next_number

    def snapshot(self) -> PoolSnapshot:
        """As it is now, which may be ahead of what is durable: wait for that before it is told."""
        stored = [list(each.values()) for each in self._events.stored]
        return PoolSnapshot(self._events.next_number, self._pool.now_ms, stored)

    async def changed(self) -> None:
        """Wait for the next batch to be published, or for the end. May be cancelled."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None
