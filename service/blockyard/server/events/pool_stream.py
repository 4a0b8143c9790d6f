"""One pool's events, once they are durable: the last are kept, and everyone reads at their own pace."""

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from blockyard.core.kv_batch import AllBlocksCleared, Batch
from blockyard.core.pool import Pool
from blockyard.core.recent_batches import MAX_BATCHES, RecentBatches
from blockyard.server.events.codec import EventCodec, Stored
from blockyard.server.sse import message

PACE_S = 0.02
PACE_A_FOLLOWER_S = 0.004
MAX_PACE_S = 1.0
"""From tick to tick of one pool, the longer the more follow. What came in the meantime is told in one piece,
the same to all who keep up: 250 pieces a second at most for up to 245 followers, then one for each."""
MAX_PIECE_HASHES = 1_024
"""Of the batches in one piece: some milliseconds' work."""
MAX_TEXTS = 8
"""Pieces that are kept as they were written, for those who keep up and those who are just behind."""


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """All that a pool has stored after the batch before ``number``."""

    number: int
    now_ms: int
    stored: Stored


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
        self._events = pool.events
        earlier = self._events.take()
        self.next_number = self._events.next_number
        self._recent = RecentBatches(max_batches)
        for batch in earlier:
            self._recent.append(batch)
        self._told_number = self.next_number
        self._texts: dict[int, tuple[int, bytes]] = {}
        self._news: asyncio.Future[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None

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

    def publish(self, batches: Iterable[Batch]) -> None:
        """Tell of ``batches``, at least one, which are durable and follow those before."""
        for batch in batches:
            self._recent.append(batch)
            self.next_number = batch.number + 1
        if not self.followers:
            self._told_number = self.next_number
        elif self._ticking is None:
            pace_s = min(PACE_S + PACE_A_FOLLOWER_S * len(self.followers), MAX_PACE_S)
            self._ticking = asyncio.get_running_loop().call_later(pace_s, self._tick)

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        self._tick()

    def since(self, number: int, at_most: int = MAX_BATCHES) -> list[Batch]:
        """Batches from ``number`` on, or from the oldest that is kept."""
        return self._recent.since(number, at_most)

    def has(self, number: int) -> bool:
        """Whether all batches from ``number`` on are kept, none of them included."""
        first = self._recent.first_number
        return (self.next_number if first is None else first) <= number <= self.next_number

    def has_text(self, number: int) -> bool:
        """Whether `read` has nothing to write: nothing is new, or others have read it before."""
        return number >= self._told_number or number in self._texts

    def read(self, number: int) -> tuple[int, bytes]:
        """Batches from ``number`` on as server-sent events, and the number after them.

        They go up to the last tick, or are as many as have `MAX_PIECE_HASHES`, and one at least.
        """
        if number >= self._told_number:
            return number, b""
        if number not in self._texts:
            batches = self._recent.since(number, self._told_number - number, MAX_PIECE_HASHES)
            text = b"".join(map(self._message, batches))
            self._texts[number] = number + len(batches), text
            if len(self._texts) > MAX_TEXTS:
                del self._texts[next(iter(self._texts))]
        return self._texts[number]

    def _message(self, batch: Batch) -> bytes:
        identity = f"{self.stream_id}:{batch.number}"
        return message("batch", self.codec.json(batch), identity)

    def snapshot(self) -> KvSnapshot:
        """As it is now, which may be ahead of what is durable: wait for that before it is told."""
        stored = [list(each.values()) for each in self._events.stored]
        return KvSnapshot(self._events.next_number, self._pool.now_ms, stored)

    async def changed(self) -> None:
        """Wait for the next tick after a batch was published, or for the end. May be cancelled."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _tick(self) -> None:
        self._ticking = None
        self._told_number = self.next_number
        if self._news is not None:
            self._news.set_result(None)
            self._news = None
