"""Which block caches which prefix.

For each group, a block's hash maps to the block or, where the same content was computed more than once, to
several blocks in the order in which they were registered. (A hash and its group together are the hash key;
here the group picks the table, so that the key is never built.)
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from blockyard.core.ids import BlockHash, BlockId, GroupIndex

Entry: TypeAlias = BlockId | dict[BlockId, None]
"""One block, or at least two as a dict's keys: ordered, and removed from in O(1)."""


def first_block(entry: Entry) -> BlockId:
    """The block of ``entry`` that was registered first."""
    return entry if isinstance(entry, int) else next(iter(entry))


class PrefixIndex:
    """Empty at first, for ``num_groups`` groups."""

    __slots__ = ("_tables",)

    def __init__(self, num_groups: int) -> None:
        self._tables: list[dict[BlockHash, Entry]] = [{} for _ in range(num_groups)]

    @property
    def num_groups(self) -> int:
        """Groups that it has tables for."""
        return len(self._tables)

    def table(self, group: GroupIndex) -> Mapping[BlockHash, Entry]:
        """One group's entries, to read from."""
        return self._tables[group]

    def find(self, groups: Sequence[GroupIndex], block_hash: BlockHash) -> list[BlockId] | None:
        """The block that caches ``block_hash`` in each of ``groups``, or None if one of them has none."""
        found = []
        for group in groups:
            entry = self._tables[group].get(block_hash)
            if entry is None:
                return None
            found.append(first_block(entry))
        return found

    def add(self, group: GroupIndex, block_hash: BlockHash, block: BlockId) -> None:
        """Register ``block``, which is not registered under this hash yet."""
        table = self._tables[group]
        entry = table.get(block_hash)
        if entry is None:
            table[block_hash] = block
        elif isinstance(entry, dict):
            entry[block] = None
        else:
            table[block_hash] = {entry: None, block: None}

    def remove(self, group: GroupIndex, block_hash: BlockHash, block: BlockId) -> None:
        """Forget ``block``, which is registered under this hash."""
        table = self._tables[group]
        entry = table[block_hash]
        if isinstance(entry, dict):
            del entry[block]
            if len(entry) == 1:
                table[block_hash] = first_block(entry)
        else:
            del table[block_hash]

    def clear(self) -> None:
        """Forget everything."""
        for table in self._tables:
            table.clear()

    def shared(self) -> list[tuple[GroupIndex, BlockHash, list[BlockId]]]:
        """Every hash key that has several blocks, and these in the order of their registration.

        In order: by what the index holds, not by how it came to hold it.
        """
        return sorted(
            (group, block_hash, list(entry))
            for group, table in enumerate(self._tables)
            for block_hash, entry in table.items()
            if isinstance(entry, dict)
        )
