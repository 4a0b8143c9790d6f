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

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from blockyard.core.extra_keys import ExtraKeys
from blockyard.core.ids import BlockHash, GroupIndex
from blockyard.core.prefix_index import Entry
from blockyard.core.statistics import Counters

MAX_BATCHES = 10_000
MAX_HASHES = 1_000_000
"""Of all batches that are kept together."""


class StoredBlock(NamedTuple):
    """What is told of a block that is stored.

    Attributes:
        block_hash: Its own.
        parent_hash: That of all tokens before it; None where there are none.
        num_tokens: Tokens that it holds.
        token_ids: These, each as 8 bytes in this machine's order; None where they were not told.
        extra_keys: What went into the hash besides, bare; None where that was not told.
        lora_name: Of the adapter that it was computed with, where there was one and it was told.
    """

    block_hash: BlockHash
    parent_hash: BlockHash | None
    num_tokens: int
    token_ids: bytes | None = None
    extra_keys: ExtraKeys | None = None
    lora_name: str | None = None

    def continues(self, before: "StoredBlock") -> bool:
        """Whether it follows ``before``, of the same group, and may be told in one event with it."""
        return (
            self.parent_hash == before.block_hash
            and self.num_tokens == before.num_tokens
            and (self.token_ids is None) == (before.token_ids is None)
            and (self.extra_keys is None) == (before.extra_keys is None)
            and self.lora_name == before.lora_name
        )

    def to_state(self) -> list[Any]:
        """The same as plain data."""
        return list(self)

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> "StoredBlock":
        """The block that ``state`` was taken from."""
        return cls._make(map(_as_tuples, state))


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks of a group are hits: each is the parent of the next."""

    group: GroupIndex
    blocks: Sequence[StoredBlock]


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A hash is no hit in a group any more."""

    group: GroupIndex
    block_hash: BlockHash


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is a hit any more."""


KvEvent: TypeAlias = BlocksStored | BlockRemoved | AllBlocksCleared


@dataclass(frozen=True, slots=True)
class Batch:
    """What one command changed.

    Attributes:
        number: Of this batch in the pool's life, from 0.
        now_ms: When it was.
        events: In an order in which they may be applied; never none.
    """

    number: int
    now_ms: int
    events: Sequence[KvEvent]


class RecentBatches:
    """The last batches, as many as may be kept: when there is no room, the oldest go.

    Args:
        max_batches: At most so many.
        max_hashes: With so many hashes together, but always the last one.
    """

    __slots__ = ("_batches", "_max_batches", "_max_hashes", "_num_hashes", "_sizes")

    def __init__(self, max_batches: int = MAX_BATCHES, max_hashes: int = MAX_HASHES) -> None:
        self._max_batches = max_batches
        self._max_hashes = max_hashes
        self._num_hashes = 0
        self._batches: deque[Batch] = deque()
        self._sizes: deque[int] = deque()

    def append(self, batch: Batch) -> None:
        """Keep ``batch``, which follows the one before."""
        batches, sizes = self._batches, self._sizes
        num_hashes = len(batch.events)
        for event in batch.events:
            if isinstance(event, BlocksStored):
                num_hashes += len(event.blocks) - 1
        batches.append(batch)
        sizes.append(num_hashes)
        self._num_hashes += num_hashes
        while len(batches) > self._max_batches or (self._num_hashes > self._max_hashes and len(batches) > 1):
            batches.popleft()
            self._num_hashes -= sizes.popleft()

    def since(self, number: int, at_most: int) -> list[Batch]:
        """Those from ``number`` on, or from the oldest that is kept."""
        batches = self._batches
        first = max(number - batches[0].number, 0) if batches else 0
        # By index from the end, where those lie that are asked for most: cheap there in a deque.
        return [
            batches[place] for place in range(first - len(batches), min(first + at_most - len(batches), 0))
        ]

    @property
    def first_number(self) -> int | None:
        """Of the oldest that is kept; None where there is none."""
        return self._batches[0].number if self._batches else None

    def take(self) -> list[Batch]:
        """All of them, which are kept no longer."""
        taken = list(self._batches)
        self._batches.clear()
        self._sizes.clear()
        self._num_hashes = 0
        return taken


class KvEvents:
    """Watches the prefix index of a pool in which nothing is cached yet.

    Args:
        tables: The index, a table a group.
        counters: Counts the batches.

    Attributes:
        stored: Per group, what is told of each hash that is a hit, in the order in which it became one.
    """

    __slots__ = ("_batches", "_counters", "_forgotten", "_is_cleared", "_published", "_tables", "stored")

    def __init__(self, tables: Sequence[Mapping[BlockHash, Entry]], counters: Counters) -> None:
        self._tables = tables
        self._counters = counters
        self._published: dict[tuple[GroupIndex, BlockHash], StoredBlock] = {}
        self._forgotten: dict[tuple[GroupIndex, BlockHash], None] = {}
        self._is_cleared = False
        self.stored: list[dict[BlockHash, StoredBlock]] = [{} for _ in tables]
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
            f"group {group} has {len(table)} hashes that are hits, and events told of {len(stored)}"
            for group, (table, stored) in enumerate(zip(self._tables, self.stored, strict=True))
            if table.keys() != stored.keys()
        ]

    def to_state(self) -> list[list[Any]]:
        """What is stored as plain data, a list a group. Batches that wait are not in it."""
        return [[block.to_state() for block in stored.values()] for stored in self.stored]

    def load(self, state: Sequence[Sequence[Sequence[Any]]]) -> None:
        """Go on from what ``state`` was taken from: the index has the same hashes."""
        for stored, blocks in zip(self.stored, state, strict=True):
            stored.update((block.block_hash, block) for block in map(StoredBlock.from_state, blocks))

    def _remove(self) -> Iterator[KvEvent]:
        for group, block_hash in self._forgotten:
            if block_hash in self.stored[group] and block_hash not in self._tables[group]:
                del self.stored[group][block_hash]
                yield BlockRemoved(group, block_hash)

    def _store(self) -> Iterator[KvEvent]:
        new: list[list[StoredBlock]] = [[] for _ in self.stored]
        for (group, block_hash), block in self._published.items():
            if block_hash in self._tables[group] and block_hash not in self.stored[group]:
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


def _as_tuples(value: Any) -> Any:
    """Lists as tuples, throughout."""
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value
