"""Which block caches which prefix.

A block is found by its hash key: the hash that it carries, and the group that it carries it for. The index is
a hash table with chains, in two vectors of integers, and compares keys where they stand anyway, with the
blocks: so a block in it is no object, and the garbage collector sees none of it.

    slot of a key      _heads[slot] -> block -> _chain[block] -> ... -> 0, the null block: it caches nothing

Two kinds of key are rare, and stand in dictionaries beside it. The same content may be computed more than
once: of the blocks of one key the first that was registered is in a chain, and the others wait in their order
to follow it. And where hits may end inside blocks, a block can be found by more keys than its own: all blocks
of such a key are in `_further`, as they were registered.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, GroupIndex

_GROUP_STRIDE: Final = 0x9E3779B1
"""Keeps the keys of one hash in several groups apart: a prime near 2^32 times the golden ratio."""


class PrefixIndex:
    """Empty at first.

    Args:
        hashes: Per block, the hash that it carries: set here, for others to read.
        groups: Per block, the group that it carries it for; likewise.
    """

    __slots__ = ("_chain", "_further", "_groups", "_hashes", "_heads", "_mask", "_others")

    def __init__(self, hashes: list[BlockHash | None], groups: "vec[i64]") -> None:
        num_slots = 1 << max(len(hashes) - 1, 0).bit_length()
        self._hashes = hashes
        self._groups = groups
        self._mask: i64 = num_slots - 1
        self._heads = vec[i64]([NULL_BLOCK] * num_slots)
        self._chain = vec[i64]([NULL_BLOCK] * len(hashes))
        self._others: dict[BlockId, dict[BlockId, None]] = {}
        self._further: dict[tuple[GroupIndex, BlockHash], dict[BlockId, None]] = {}

    def first(self, group: GroupIndex, block_hash: BlockHash) -> BlockId:
        """The block that caches ``block_hash`` in ``group``, the first that was registered; null for none."""
        if self._further:
            blocks = self._further.get((group, block_hash))
            if blocks is not None:
                return next(iter(blocks))
        return self._first_by_own(group, block_hash)

    def find(self, groups: Sequence[GroupIndex], block_hash: BlockHash) -> list[BlockId] | None:
        """As `first` in each of ``groups``, or None if one of them has none."""
        found = []
        for group in groups:
            block = self.first(group, block_hash)
            if block == NULL_BLOCK:
                return None
            found.append(block)
        return found

    def blocks(self, group: GroupIndex, block_hash: BlockHash) -> list[BlockId]:
        """All blocks that cache ``block_hash`` in ``group``, in the order of their registration."""
        further = self._further.get((group, block_hash))
        return self._all_by_own(group, block_hash) if further is None else list(further)

    def run(self, group: GroupIndex, block_hashes: list[BlockHash]) -> list[BlockId]:
        """The blocks that cache ``block_hashes`` in ``group``, from the first on until one is missing."""
        found: list[BlockId] = []
        if self._further:
            for block_hash in block_hashes:
                block = self.first(group, block_hash)
                if block == NULL_BLOCK:
                    break
                found.append(block)
            return found
        hashes, groups, heads, following = self._hashes, self._groups, self._heads, self._chain
        offset: i64 = group * _GROUP_STRIDE
        mask = self._mask
        own_group: i64 = group
        for block_hash in block_hashes:
            hashed: i64 = hash(block_hash)
            at: i64 = heads[(hashed ^ offset) & mask]  # `_first_by_own` written out: a call costs more
            while at != NULL_BLOCK and (hashes[at] != block_hash or groups[at] != own_group):
                at = following[at]
            if at == NULL_BLOCK:
                break
            found.append(at)
        return found

    def add_run(self, group: GroupIndex, blocks: list[BlockId], block_hashes: list[BlockHash]) -> None:
        """Let each of ``blocks`` carry its hash; none carries one yet. They are registered in this order."""
        hashes, groups, heads, following = self._hashes, self._groups, self._heads, self._chain
        own_group: i64 = group
        offset: i64 = own_group * _GROUP_STRIDE
        mask = self._mask
        block: i64
        for block, block_hash in zip(blocks, block_hashes):  # noqa: B905 - a plain zip compiles to a plain loop
            assert hashes[block] is None, f"block {block} carries a hash already"
            hashed: i64 = hash(block_hash)
            slot: i64 = (hashed ^ offset) & mask
            at: i64 = heads[slot]
            while at != NULL_BLOCK and (hashes[at] != block_hash or groups[at] != own_group):
                at = following[at]
            hashes[block] = block_hash
            groups[block] = own_group
            if at == NULL_BLOCK:
                following[block] = heads[slot]
                heads[slot] = block
            else:
                self._others.setdefault(at, {})[block] = None
        if self._further:
            self._note_further(blocks)

    def add_further(self, group: GroupIndex, block_hash: BlockHash, block: BlockId) -> None:
        """Register ``block``, which carries another hash, under this one as well."""
        key = (group, block_hash)
        if key not in self._further:
            self._further[key] = dict.fromkeys(self._all_by_own(group, block_hash))
        self._further[key][block] = None

    def remove_run(self, blocks: list[BlockId]) -> None:
        """Take their hashes from ``blocks``, each of which carries one."""
        if self._further:
            for each in blocks:
                group, own_hash = self._key(each)
                assert own_hash is not None, "a block that is removed carries a hash"
                self.remove_further(group, own_hash, each)
        hashes, groups, heads, following = self._hashes, self._groups, self._heads, self._chain
        mask = self._mask
        block: i64
        for block in blocks:
            hashed: i64 = hash(hashes[block])
            slot: i64 = (hashed ^ (groups[block] * _GROUP_STRIDE)) & mask
            before: i64 = NULL_BLOCK
            at: i64 = heads[slot]
            while at not in (block, NULL_BLOCK):
                before, at = at, following[at]
            if at == NULL_BLOCK:
                self._drop_other(block)
            else:
                after: i64 = self._successor(block) if self._others else following[block]
                if before == NULL_BLOCK:
                    heads[slot] = after
                else:
                    following[before] = after
            hashes[block] = None

    def remove_further(self, group: GroupIndex, block_hash: BlockHash, block: BlockId) -> None:
        """Find ``block`` no more under this hash, where some block has it beside its own."""
        blocks = self._further.get((group, block_hash))
        if blocks is not None:
            del blocks[block]
            if all(self._hashes[each] == block_hash for each in blocks):
                del self._further[group, block_hash]

    def clear(self) -> None:
        """Forget everything."""
        self._hashes[:] = [None] * len(self._hashes)
        self._heads = vec[i64]([NULL_BLOCK] * len(self._heads))
        self._others.clear()
        self._further.clear()

    def registered(self) -> Iterator[tuple[GroupIndex, BlockHash | None, BlockId]]:
        """Every registration: a block's own once, and each further one. In no order that means anything."""
        hashes, groups = self._hashes, self._groups
        for first in self._firsts():
            for block in (first, *self._others.get(first, ())):
                yield int(groups[block]), hashes[block], block
        yield from self.further()

    def hashes(self, group: GroupIndex) -> set[BlockHash]:
        """All that is found in ``group``."""
        return {
            block_hash
            for its_group, block_hash, _ in self.registered()
            if its_group == group and block_hash is not None
        }

    def shared(self) -> list[tuple[GroupIndex, BlockHash, list[BlockId]]]:
        """Every hash key that has several blocks, and these in the order of their registration.

        In order: by what the index holds, not by how it came to hold it.
        """
        found = [(*key, list(blocks)) for key, blocks in self._further.items() if len(blocks) > 1]
        for block, others in self._others.items():
            group, block_hash = self._key(block)
            assert block_hash is not None, "a block in the index carries a hash"
            if (group, block_hash) not in self._further:
                found.append((group, block_hash, [block, *others]))
        return sorted(found)

    def inspect(self) -> tuple[int, list[str]]:
        """How many blocks stand under their own keys, and those of them that nobody finds there."""
        hashes, groups, following = self._hashes, self._groups, self._chain
        mask = self._mask
        num_blocks = 0
        misplaced: list[BlockId] = []
        slot: i64 = 0
        for head in self._heads:
            at: i64 = head
            while at != NULL_BLOCK and num_blocks < len(hashes):  # a chain that never ends is cut off
                num_blocks += 1
                hashed: i64 = hash(hashes[at])
                if hashes[at] is None or (hashed ^ (groups[at] * _GROUP_STRIDE)) & mask != slot:
                    misplaced.append(at)
                at = following[at]
            slot += 1  # noqa: SIM113 - an unboxed count
        for first, others in self._others.items():
            num_blocks += len(others)
            misplaced += [block for block in others if self._key(block) != self._key(first)]
        return num_blocks, [
            f"block {block} is indexed under a hash that it does not carry" for block in misplaced
        ]

    def further(self) -> Iterator[tuple[GroupIndex, BlockHash, BlockId]]:
        """Every block under each key that is not its own."""
        for (group, block_hash), blocks in self._further.items():
            for block in blocks:
                if self._hashes[block] != block_hash:
                    yield group, block_hash, block

    def _firsts(self) -> Iterator[BlockId]:
        """Every block in a chain."""
        for head in self._heads:
            yield from self._in_chain(head)

    def _in_chain(self, head: "i64") -> Iterator[BlockId]:
        block = int(head)
        while block != NULL_BLOCK:
            yield block
            block = int(self._chain[block])

    def _key(self, block: BlockId) -> tuple[GroupIndex, BlockHash | None]:
        return int(self._groups[block]), self._hashes[block]

    def _slot(self, group: GroupIndex, block_hash: BlockHash | None) -> int:
        hashed: i64 = hash(block_hash)
        offset: i64 = group * _GROUP_STRIDE
        return (hashed ^ offset) & self._mask

    def _first_by_own(self, group: GroupIndex, block_hash: BlockHash | None) -> BlockId:
        hashes, groups, following = self._hashes, self._groups, self._chain
        own_group: i64 = group
        at: i64 = self._heads[self._slot(group, block_hash)]
        while at != NULL_BLOCK and (hashes[at] != block_hash or groups[at] != own_group):
            at = following[at]
        return at

    def _all_by_own(self, group: GroupIndex, block_hash: BlockHash) -> list[BlockId]:
        first = self._first_by_own(group, block_hash)
        return [] if first == NULL_BLOCK else [first, *self._others.get(first, ())]

    def _note_further(self, blocks: list[BlockId]) -> None:
        """Some keys have blocks that are found by more than their own: ``blocks`` may have come to them."""
        for block in blocks:
            group, block_hash = self._key(block)
            assert block_hash is not None, "a block that is added carries a hash"
            shared = self._further.get((group, block_hash))
            if shared is not None:
                shared[block] = None

    def _drop_other(self, block: BlockId) -> None:
        """Forget a block that waits behind another of the same key."""
        first = self._first_by_own(*self._key(block))
        others = self._others[first]
        del others[block]
        if not others:
            del self._others[first]

    def _successor(self, block: BlockId) -> BlockId:
        """What takes the place of ``block`` in its chain: the next one of the same key, or what follows."""
        after = int(self._chain[block])
        others = self._others.pop(block, None)
        if others is None:
            return after
        heir = next(iter(others))
        del others[heir]
        if others:
            self._others[heir] = others
        self._chain[heir] = after
        return heir
