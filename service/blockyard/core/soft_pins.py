"""Blocks that are evicted last: those that carry a hash which somebody has pinned.

Free ones stand in a queue of their own, in the order in which they will be used again once no others are
left. Whether a block is pinned follows from its hashes alone: it does not matter when these were published.

Invariant: `blocks` are those that carry a pinned hash, and a free one of them is in this queue, not in the
store's own.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId

if TYPE_CHECKING:
    from blockyard.core.block_store import BlockStore


class SoftPins:
    """Of ``store``, in which nothing is pinned yet. Whoever pins and unpins has set ``store.soft_pins``.

    Attributes:
        blocks: Those that carry a pinned hash, held or free.
    """

    __slots__ = ("_free", "_num_pins", "_store", "blocks")

    def __init__(self, store: "BlockStore") -> None:
        self._store = store
        self._num_pins: dict[BlockHash, int] = {}  # by the hash
        self._free: OrderedDict[BlockId, None] = OrderedDict()
        self.blocks: set[BlockId] = set()

    def __len__(self) -> int:
        return len(self._free)

    def __iter__(self) -> Iterator[BlockId]:
        """The free blocks, the one to be used first at the front."""
        return iter(self._free)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is pinned."""
        return not self._num_pins

    # What is pinned

    def pin(self, block_hashes: Sequence[BlockHash]) -> None:
        """Keep the blocks with ``block_hashes``, a prefix's, once more. Free ones stand as if freed now."""
        self._store.queue.remove(self._count(block_hashes))

    def _count(self, block_hashes: Sequence[BlockHash]) -> list[BlockId]:
        """Note that ``block_hashes`` are pinned; returns the free blocks that are in this queue for it."""
        num_pins = self._num_pins
        new: dict[BlockHash, None] = {}
        for block_hash in block_hashes:
            num_pins[block_hash] = num_pins.get(block_hash, 0) + 1
            if num_pins[block_hash] == 1:
                new[block_hash] = None
        counts = self._store.reference_counts
        moved = []
        for block in self._blocks_with(reversed(new)):
            if block not in self.blocks:
                self.blocks.add(block)
                if counts[block] == 0:
                    moved.append(block)
        self._free.update(dict.fromkeys(moved))
        return moved

    def unpin(self, block_hashes: Sequence[BlockHash]) -> None:
        """Keep them once less; blocks that nobody keeps any more, if free, stand as if freed now."""
        num_pins = self._num_pins
        ended: dict[BlockHash, None] = {}
        for block_hash in block_hashes:
            num_pins[block_hash] -= 1
            if num_pins[block_hash] == 0:
                del num_pins[block_hash]
                ended[block_hash] = None
        moved = []
        for block in self._blocks_with(reversed(ended)):
            if block in self.blocks and not self._is_pinned(block):
                self.blocks.discard(block)
                if block in self._free:
                    del self._free[block]
                    moved.append(block)
        self._store.queue.append(moved)

    def count_blocks(self, block_hashes: Iterable[BlockHash]) -> int:
        """How many blocks carry one of ``block_hashes``, which are pinned."""
        return len(set(self._blocks_with(block_hashes)))

    # What becomes of blocks

    def note_published(self, blocks: list[BlockId], block_hashes: list[BlockHash]) -> None:
        """Each of ``blocks``, which are held, carries its hash from now on."""
        num_pins = self._num_pins
        for block, block_hash in zip(blocks, block_hashes):  # noqa: B905 - a plain zip compiles to a plain loop
            if block_hash in num_pins:
                self.blocks.add(block)

    def note_forgotten(self, blocks: list[BlockId]) -> None:
        """None of ``blocks``, which are held, carries a hash any more."""
        self.blocks.difference_update(blocks)

    def clear(self) -> list[BlockId]:
        """No block carries a hash any more; returns the free ones, which leave this queue, in their order."""
        free = list(self._free)
        self._free.clear()
        self.blocks.clear()
        return free

    def keep(self, blocks: list[BlockId]) -> list[BlockId]:
        """Put those of ``blocks``, free from now on, that are pinned behind the others; returns the rest."""
        rest: list[BlockId] = []
        for block in blocks:
            if block in self.blocks:
                self._free[block] = None
            else:
                rest.append(block)
        return rest

    def leave(self, blocks: list[BlockId]) -> list[BlockId]:
        """Take those of ``blocks``, which are free, out of this queue that are in it; returns the rest."""
        rest: list[BlockId] = []
        for block in blocks:
            if block in self._free:
                del self._free[block]
            else:
                rest.append(block)
        return rest

    def pop(self, num_blocks: int) -> list[BlockId]:
        """Take the ``num_blocks`` blocks to be used first. The caller makes sure that there are as many."""
        return [self._free.popitem(last=False)[0] for _ in range(num_blocks)]

    # Books and snapshots

    def load(self, block_hashes: Iterable[Sequence[BlockHash]], free: Iterable[BlockId]) -> None:
        """Pin each of ``block_hashes`` in a store whose own queue is without ``free`` already."""
        for each in block_hashes:
            self._count(each)
        self._free = OrderedDict.fromkeys(free)

    def problems(self) -> list[str]:
        """What contradicts the invariant; empty when all is well."""
        store = self._store
        pinned = {
            block for block, own in enumerate(store.hashes) if own is not None and self._is_pinned(block)
        }
        found = []
        if pinned != self.blocks:
            found.append(f"{len(pinned)} blocks carry a pinned hash, {len(self.blocks)} are kept as such")
        free = {block for block in pinned if store.reference_counts[block] == 0}
        if free != set(self._free):
            found.append(f"{len(free)} pinned blocks are free, {len(self._free)} wait to be evicted last")
        found += [f"block {block} is free twice" for block in store.queue if block in self._free]
        return found

    def _is_pinned(self, block: BlockId) -> bool:
        return any(block_hash in self._num_pins for block_hash in self._store.hashes_of(block))

    def _blocks_with(self, block_hashes: Iterable[BlockHash]) -> list[BlockId]:
        """The blocks that carry ``block_hashes``: group by group, in the order of these."""
        index, told = self._store.index, list(block_hashes)
        found: list[BlockId] = []
        for group in range(self._store.num_groups):
            for block_hash in told:
                if index.first(group, block_hash) != NULL_BLOCK:
                    found += index.blocks(group, block_hash)
        return found
