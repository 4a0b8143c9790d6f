"""A pool's prefix index somewhere else, kept from its events alone: for routers, say.

It may begin late, miss batches, and see the server start anew: what is missing is asked for again, and where
that is not kept any more, or belongs to another stream, all is read anew. After `KvMirror.catch_up` it has
exactly what the pool had when that was answered.

Whenever batches are asked for, the last one that is known is among them: were it not there, or of another
stream, then the numbers would not say what is missing.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from blockyard.client.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    ExternalHash,
    KvBatch,
    KvEvent,
    KvSnapshot,
)

Snapshot: TypeAlias = Callable[[], KvSnapshot]
MAX_FOREIGN = 64

Missed: TypeAlias = Callable[[int], Iterable[KvBatch]]


class KvMirror:
    """Nothing is known at first.

    Args:
        snapshot: Reads all that the pool has stored.
        missed: Reads the batches from a number on, as far as they are kept.

    Attributes:
        stored: By group, the event that told of each hash. (Publishers with one group may say none: None.)
        stream_id: Of the stream that it follows.
        next_number: Of the batch that comes next.
        num_snapshots: How often all was read.
    """

    def __init__(self, snapshot: Snapshot, missed: Missed) -> None:
        self._snapshot = snapshot
        self._missed = missed
        self.stored: dict[int | None, dict[ExternalHash, BlockStored]] = {}
        self.stream_id: str | None = None
        self.next_number: int | None = None
        self.num_snapshots = 0
        self._foreign: deque[str] = deque(maxlen=MAX_FOREIGN)  # streams that are not this pool's, or were

    def has(self, block_hash: ExternalHash, group: int | None = 0) -> bool:
        """Whether ``block_hash`` is a hit in ``group``."""
        return block_hash in self.stored.get(group, ())

    def receive(self, batch: KvBatch) -> None:
        """Take what the publisher sent.

        Passed over are batches that are known already, and those of streams that are found not to be the
        pool's: of an earlier start of the server, or of another pool under the same topic.
        """
        if batch.stream_id in self._foreign:
            return
        if self.next_number is None or batch.stream_id != self.stream_id:
            self._read_all()
        elif batch.number > self.next_number:
            self._read_missed(batch.number)
        if batch.stream_id is not None and batch.stream_id != self.stream_id:
            self._foreign.append(batch.stream_id)
        self._take(batch)

    def catch_up(self) -> None:
        """Read what has been published and not received, be it missed or on its way."""
        if self.next_number is None:
            self._read_all()
        else:
            self._read_missed(None)

    def _read_missed(self, up_to: int | None) -> None:
        """The batches before ``up_to`` (None: those that there are), or else all anew."""
        assert self.next_number is not None
        last = self.next_number - 1
        batches = list(self._missed(last)) if last >= 0 else []
        is_whole = bool(batches) and batches[0].number == last and all(map(self._take, batches))
        if not is_whole or (up_to is not None and up_to > self.next_number):
            self._read_all()

    def _read_all(self) -> None:
        snapshot = self._snapshot()
        self.num_snapshots += 1
        self.stored.clear()
        for event in snapshot.events:
            self._apply(event)
        self.stream_id, self.next_number = snapshot.stream_id, snapshot.number

    def _take(self, batch: KvBatch) -> bool:
        """Apply ``batch`` if it is the next one; whether it is, or was, one of those that follow."""
        assert self.next_number is not None
        if batch.stream_id != self.stream_id or batch.number > self.next_number:
            return False
        if batch.number == self.next_number:
            for event in batch.events:
                self._apply(event)
            self.next_number += 1
        return True

    def _apply(self, event: KvEvent) -> None:
        if isinstance(event, BlockStored):
            stored = self.stored.setdefault(event.group_idx, {})
            stored.update(dict.fromkeys(event.block_hashes, event))
        elif isinstance(event, BlockRemoved):
            stored = self.stored.get(event.group_idx, {})
            for block_hash in event.block_hashes:
                stored.pop(block_hash, None)
        else:
            assert isinstance(event, AllBlocksCleared)
            self.stored.clear()
