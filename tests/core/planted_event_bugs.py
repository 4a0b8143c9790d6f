"""Bugs planted in what a pool tells of its prefix index."""

from collections.abc import Callable, Iterator
from typing import Any

from blockyard.core.ids import BlockHash, GroupIndex
from blockyard.core.kv_batch import BlockRemoved, KvEvent
from blockyard.core.kv_events import KvEvents
from blockyard.core.pool import Pool


class EvictionsUntold(KvEvents):
    __slots__ = ()

    def forgotten(self, group: GroupIndex, block_hash: BlockHash) -> None:
        pass


class FirstCopyRemoves(KvEvents):
    __slots__ = ()

    def _remove(self) -> Iterator[KvEvent]:
        for group, block_hash in self._forgotten:
            if self.stored[group].pop(block_hash, None) is not None:
                yield BlockRemoved(group, block_hash)


class ClearingUntold(KvEvents):
    __slots__ = ()

    def cleared(self) -> None:
        pass


class StoredLostInSnapshot(KvEvents):
    __slots__ = ()

    def to_state(self) -> list[list[Any]]:
        return [[] for _ in self.stored]


def _planter(bug: type[KvEvents]) -> Callable[[Pool], None]:
    def plant(pool: Pool) -> None:
        if pool.events is not None:
            pool.events.__class__ = bug

    return plant


EVENT_BUGS = {
    bug.__name__: _planter(bug)
    for bug in (EvictionsUntold, FirstCopyRemoves, ClearingUntold, StoredLostInSnapshot)
}
