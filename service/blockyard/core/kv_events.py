"""What becomes a hit and what is one no more, told as it happens: for those who keep an index of their own.

One batch a command, made at its end from what is different from before: a hash key that was found and is not
any more is removed, one that is found and was not before is stored. How often a key comes and goes within a
command, and how many blocks it has, is not told: whoever keeps a set of keys has exactly those of the pool's
index after each batch.

    command     publishes a, b   publishes a again   evicts the first a   evicts the other a
    told        stored a, b      -                   -                    removed a

Batches are numbered from 0 in the pool's life, `Counters.num_event_batches`: like everything else here they
follow from the commands, so that a replay gives the same batches the same numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from blockyard.core.ids import NULL_BLOCK, BlockHash, GroupIndex
from blockyard.core.kv_batch import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlocksStored,
    KvEvent,
    StoredBlock,
)
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.recent_batches import RecentBatches
from blockyard.core.statistics import Counters


class KvEvents:
    """Watches the prefix index of a pool in which nothing is cached yet.

    Args:
        indexes: The index of each group.
        counters: Counts the batches.

    Attributes:
        stored: Per group, what is told of each hash that is a hit, in the order in which it became one.
    """

    __slots__ = ("_batches", "_counters", "_forgotten", "_indexes", "_is_cleared", "_published", "stored")

    def __init__(self, indexes: Sequence[PrefixIndex], counters: Counters) -> None:
        self._indexes = indexes
        self._counters = counters
        self._published: dict[tuple[GroupIndex, BlockHash], StoredBlock] = {}
        self._forgotten: dict[tuple[GroupIndex, BlockHash], None] = {}
        self._is_cleared = False
        self.stored: list[dict[BlockHash, StoredBlock]] = [{} for _ in indexes]
        self._batches = RecentBatches()

    @property
    def next_number(self) -> int:
        """Of the batch to come."""
        return self._counters.num_event_batches

    def published(self, group: GroupIndex, block: StoredBlock) -> None:
        """The command at hand made ``block`` a hit."""
        self._published[group, block.block_hash] = block

    def forgotten(self, group: GroupIndex, block_hash: BlockHash) -> None:
        """The command at hand took a hash from some block."""
        self._forgotten[group, block_hash] = None

    def cleared(self) -> None:
        """The command at hand took all hashes from all blocks."""
        self._is_cleared = True

    def end_command(self, now_ms: int) -> None:
        """The command is done: what it changed is a batch, if it changed anything."""
        if not (self._published or self._forgotten or self._is_cleared):
            return
        events: list[KvEvent] = []
        if self._is_cleared:
            self._is_cleared = False
            for stored in self.stored:
                stored.clear()
            events.append(AllBlocksCleared())
        if self._forgotten:
            events += self._remove()
            self._forgotten.clear()
        if self._published:
            events += self._store()
            self._published.clear()
        if events:
            self._batches.append(Batch(self._counters.num_event_batches, now_ms, events))
            self._counters.num_event_batches += 1

    def take(self) -> list[Batch]:
        """The batches that nobody has taken yet; where they were too many, the last of them."""
        return self._batches.take()

    def problems(self) -> list[str]:
        """Groups of which something else was told than the index has."""
        return [
            f"group {group} has {len(found)} hashes that are hits, and events told of {len(stored)}"
            for group, stored in enumerate(self.stored)
            if (found := self._indexes[group].hashes(group)) != stored.keys()
        ]

    def to_state(self) -> list[list[Any]]:
        """What is stored as plain data, a list a group. Batches that wait are not in it."""
        return [[block.to_state() for block in stored.values()] for stored in self.stored]

    def load(self, state: Sequence[Sequence[Sequence[Any]]]) -> None:
        """Go on from what ``state`` was taken from: the index has the same hashes."""
        for stored, blocks in zip(self.stored, state, strict=True):
            stored.update((block.block_hash, block) for block in map(StoredBlock.from_state, blocks))

    def _is_hit(self, group: GroupIndex, block_hash: BlockHash) -> bool:
        return self._indexes[group].first(group, block_hash) != NULL_BLOCK

    def _remove(self) -> Iterator[KvEvent]:
        for group, block_hash in self._forgotten:
            if block_hash in self.stored[group] and not self._is_hit(group, block_hash):
                del self.stored[group][block_hash]
                yield BlockRemoved(group, block_hash)

    def _store(self) -> Iterator[KvEvent]:
        new: list[list[StoredBlock]] = [[] for _ in self.stored]
        for (group, block_hash), block in self._published.items():
            if self._is_hit(group, block_hash) and block_hash not in self.stored[group]:
                self.stored[group][block_hash] = block
                new[group].append(block)
        for group, blocks in enumerate(new):
            for run in runs(blocks):
                yield BlocksStored(group, run)


def runs(blocks: Iterable[StoredBlock], max_blocks: int | None = None) -> Iterator[list[StoredBlock]]:
    """``blocks`` of one group in the same order, cut wherever one does not continue the one before.

    None has more than ``max_blocks``; None: as many as there are.
    """
    run: list[StoredBlock] = []
    for block in blocks:
        if run and (len(run) == max_blocks or not block.continues(run[-1])):
            yield run
            run = []
        run.append(block)
    if run:
        yield run
