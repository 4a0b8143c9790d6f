"""Forks: sequences that go on from where another one stands, with its blocks.

A fork shares the blocks of all tokens that its parent has slots for. Of these only the last one is written
again, where it is not full: whoever writes there first gets a copy of it, and the last one writes in place.

    parent              |1111|2222|33..|      3 is open: the parent or the fork may be the first to go on
    fork                |1111|2222|33..|
    the parent goes on  |1111|2222|444.|      it is told to copy 3 to 4, and that 4 stands in place of 3
    the fork goes on    |1111|2222|335.|      3 is its own by now

Blocks that every step writes over, as those of recurrent states, cannot wait for that: a fork gets copies of
them at once.

Invariant: `BlockStore.open_forks` counts, of each block that several tables share as their open one, how many
these are. One does so as long as its sequence has no more tokens than were forked.
"""

from collections import Counter
from collections.abc import Container, Iterable
from collections.abc import Sequence as SequenceOf
from typing import Final, TypeAlias

from blockyard.core.block_store import BlockStore
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK, BlockId, GroupIndex, SequenceId
from blockyard.core.kinds import Kind
from blockyard.core.sequence import BlockTable, Sequence

MAX_FORKS: Final = 128
"""Of one call, whose reply has a table for each."""

MAX_FORKED_ENTRIES: Final = 2**23
"""Entries in all tables of one call's forks: an entry takes memory and time also where it is null."""

Copies: TypeAlias = list[tuple[BlockId, BlockId]]
"""Blocks to copy, from and to."""

Replaced: TypeAlias = list[list[int]]
"""Entries of block tables that have become another block: sequence's handle, group, position, block."""


class Forks:
    """Of a pool whose groups are of ``kinds``, each with its blocks in one of ``stores``.

    Args:
        kinds: One a group.
        stores: Likewise; the device's blocks for all but those of the host.
        device: The device's blocks.
    """

    __slots__ = ("_device", "_kinds", "_replaced", "_stores")

    def __init__(self, kinds: SequenceOf[Kind], stores: SequenceOf[BlockStore], device: BlockStore) -> None:
        self._kinds = kinds
        self._stores = stores
        self._device = device
        self._replaced: Replaced = []
        """By `write`, since it was last taken."""

    def check(
        self,
        sequence: Sequence,
        new_ids: SequenceOf[SequenceId],
        known: Container[SequenceId],
    ) -> None:
        """Refuse forks that cannot be.

        Args:
            sequence: What is to be forked.
            new_ids: Of the forks.
            known: Ids that the lease has already.

        Raises:
            InvalidRequest: There are none, too many or one twice, or one is known; their tables would be too
                long in all; or a block of ``sequence`` that has to be copied lies on the host: reported
                copies are the device's.
        """
        if not 0 < len(new_ids) <= MAX_FORKS:
            raise InvalidRequest.of("new_sequence_ids", f"has {len(new_ids)} ids: 1 to {MAX_FORKS} are taken")
        if len(set(new_ids)) != len(new_ids):
            raise InvalidRequest.of("new_sequence_ids", "names a sequence twice")
        for sequence_id in new_ids:
            if sequence_id in known:
                raise InvalidRequest.of("new_sequence_ids", f"{sequence_id!r} is a sequence's already")
        num_entries = sum(len(table.block_ids) for table in sequence.tables)
        if num_entries * len(new_ids) > MAX_FORKED_ENTRIES:
            raise InvalidRequest.of(
                "new_sequence_ids",
                f"has {len(new_ids)} ids, each for {num_entries} entries of block tables: at most "
                f"{MAX_FORKED_ENTRIES} entries are made by one call",
            )
        for kind, store in zip(self._kinds, self._stores, strict=True):
            is_open = kind.open_position(sequence.num_granted_tokens) is not None
            if store is not self._device and (is_open or kind.overwrites_blocks):
                raise InvalidRequest.of(
                    "sequence_id",
                    f"sequence {sequence.sequence_id!r} has {sequence.num_granted_tokens} tokens, and a "
                    "block that is not full, or is written over, on the host, where none is copied: "
                    f"fork it where {kind.block_size} tokens fill one",
                )

    def num_own(self, sequence: Sequence) -> list[int]:
        """Per group, the blocks that each fork of ``sequence`` gets of its own."""
        num_own = []
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            written = _written(kind, table, sequence.num_granted_tokens)
            num_own.append(len(written) - written.count(NULL_BLOCK))
        return num_own

    def fork(self, sequence: Sequence, num_forks: int, copies: Copies) -> list[list[BlockTable]]:
        """Tables of so many forks of ``sequence``, for which there are enough blocks: see `num_own`.

        Args:
            sequence: Its tables stay as they are; what is open in them is shared from now on.
            num_forks: At least 1.
            copies: Gets a pair for each block that is not shared.

        Returns:
            Per fork, its tables.
        """
        num_tokens = sequence.num_granted_tokens
        forks = [self._fork(sequence, copies) for _ in range(num_forks)]
        for kind, store, table in zip(self._kinds, self._stores, sequence.tables, strict=True):
            position = kind.open_position(num_tokens)
            if position is not None:
                block = table.block_ids[position]
                store.open_forks[block] = store.open_forks.get(block, 1) + num_forks
        sequence.num_forked_tokens = num_tokens
        return forks

    def shares(self, group: GroupIndex, sequence: Sequence) -> bool:
        """Whether what ``sequence`` writes next in ``group`` goes into a block that others share."""
        return self._open_position(group, sequence) is not None

    def write(self, group: GroupIndex, sequence: Sequence, copies: Copies) -> None:
        """Let ``sequence`` have a copy of the block that it is about to write into, if it is shared."""
        position = self._open_position(group, sequence)
        if position is not None:
            store, table = self._stores[group], sequence.tables[group]
            block = table.block_ids[position]
            _leave(store, block)
            copy = table.block_ids[position] = copy_of(block, store, copies)
            self._replaced.append([sequence.handle, group, position, copy])

    def leave(self, sequence: Sequence) -> None:
        """``sequence`` is about to give back its blocks."""
        for group, store in enumerate(self._stores):
            position = self._open_position(group, sequence)
            if position is not None:
                _leave(store, sequence.tables[group].block_ids[position])

    def take_replaced(self) -> Replaced | None:
        """What has been replaced since this was last asked; None for nothing."""
        if not self._replaced:
            return None
        replaced, self._replaced = self._replaced, []
        return replaced

    def problems(self, sequences: Iterable[Sequence]) -> list[str]:
        """What contradicts the tables of ``sequences``, which are all that there are.

        Blocks that two would write next, though they are not counted as shared, and counts that differ.
        """
        found: list[str] = []
        sharing: dict[BlockStore, Counter[BlockId]] = {store: Counter() for store in self._stores}
        for sequence in sequences:
            for kind, store, table in zip(self._kinds, self._stores, sequence.tables, strict=True):
                written = _written(kind, table, sequence.num_granted_tokens)
                position = kind.open_position(sequence.num_granted_tokens)
                if position is not None:
                    written = table.block_ids[position : position + 1]
                sharing[store].update({*written} - {NULL_BLOCK})
        for store, counts in sharing.items():
            counted = {block: times for block, times in counts.items() if times > 1}
            if counted != store.open_forks:
                wrong = sorted(block for block, _ in counted.items() ^ store.open_forks.items())
                found.append(f"blocks are written by others than are counted as sharing them: {wrong[:8]}")
        return found

    def _fork(self, sequence: Sequence, copies: Copies) -> list[BlockTable]:
        """Tables of one fork."""
        num_tokens = sequence.num_granted_tokens
        tables = []
        for kind, store, table in zip(self._kinds, self._stores, sequence.tables, strict=True):
            shared = table.block_ids[: kind.num_shared_blocks(table, num_tokens)]
            store.touch(shared)
            own = [
                NULL_BLOCK if block == NULL_BLOCK else own_copy_of(block, store, copies)
                for block in _written(kind, table, num_tokens)
            ]
            tables.append(table.forked(shared + own))
        return tables

    def _open_position(self, group: GroupIndex, sequence: Sequence) -> int | None:
        """Where ``sequence`` shares its open block; None if it does not."""
        num_tokens = sequence.num_granted_tokens
        if num_tokens != sequence.num_forked_tokens:
            return None
        position = self._kinds[group].open_position(num_tokens)
        if position is None or not self._stores[group].open_forks:
            return None
        block = sequence.tables[group].block_ids[position]
        return position if block in self._stores[group].open_forks else None


def copy_of(block: BlockId, store: BlockStore, copies: Copies) -> BlockId:
    """A new block that gets the content of ``block``, held once for a table and once for ``copies``.

    A table's hold on ``block`` is the copies' from now on.
    """
    (copy,) = store.take(1)
    store.touch([copy])
    copies.append((block, copy))
    return copy


def own_copy_of(block: BlockId, store: BlockStore, copies: Copies) -> BlockId:
    """As `copy_of`, where the table that has ``block`` keeps it."""
    store.touch([block])
    return copy_of(block, store, copies)


def copied_from(block: BlockId, store: BlockStore, copies: Copies) -> BlockId:
    """Where the content of ``block`` stands: elsewhere, if ``copies`` are to bring it first.

    A table's hold on ``block`` is on that from now on. So no block is both copied and written.
    """
    for source, destination in copies:
        if destination == block:
            store.touch([source])
            store.release([block])
            return source
    return block


def _written(kind: Kind, table: BlockTable, num_tokens: int) -> list[BlockId]:
    """The blocks of ``table`` that later steps write over; nulls among them."""
    return table.block_ids[kind.num_shared_blocks(table, num_tokens) :] if kind.overwrites_blocks else []


def _leave(store: BlockStore, block: BlockId) -> None:
    """One table less shares ``block`` as its open one."""
    num_tables = store.open_forks[block] - 1
    if num_tables > 1:
        store.open_forks[block] = num_tables
    else:
        del store.open_forks[block]
