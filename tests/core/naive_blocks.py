"""Blocks without shortcuts: nothing is kept that can be counted anew."""

from collections.abc import Sequence

from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId


class NaiveBlocks:
    """``num_blocks`` blocks, all but the null block free.

    Attributes:
        reference_counts: Per block, how many tables and raw holders name it.
        free: Blocks that nobody holds, the one to be used next first.
        index: What is cached: (hash, group, block), in the order of registration. A block "has a hash" when
            an entry names it.
        num_evictions: Blocks that lost their hash to be used again.
    """

    def __init__(self, num_blocks: int) -> None:
        self.reference_counts = [0] * num_blocks
        self.free = list(range(1, num_blocks))
        self.index: list[tuple[BlockHash, int, BlockId]] = []
        self.num_evictions = 0

    def refuse_above_free(self, num_needed: int) -> None:
        """Raise if more blocks are needed than are free."""
        if num_needed > len(self.free):
            raise InsufficientBlocks.of(num_needed, len(self.free))

    def take(self, num_blocks: int) -> list[BlockId]:
        """New blocks are popped from the queue's front; one that carries a hash loses it."""
        taken, self.free = self.free[:num_blocks], self.free[num_blocks:]
        for block in taken:
            self.num_evictions += self.is_cached(block)
            self.index = [entry for entry in self.index if entry[2] != block]
            self.reference_counts[block] = 1
        return taken

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """A hit touches its blocks: count +1, and out of the queue if the count was zero."""
        for block in blocks:
            if block != NULL_BLOCK:
                self.reference_counts[block] += 1
                self.free = [other for other in self.free if other != block]

    def release(self, blocks: Sequence[BlockId]) -> int:
        """Counts fall by one; blocks that reach zero go to the front without a hash, to the end with one."""
        held = [block for block in blocks if block != NULL_BLOCK]
        for block in held:
            self.reference_counts[block] -= 1
        idle = [block for block in held if self.reference_counts[block] == 0]
        without_hash = [block for block in idle if not self.is_cached(block)]
        with_hash = [block for block in idle if self.is_cached(block)]
        self.free = without_hash + self.free + with_hash
        return len(idle)

    def is_cached(self, block: BlockId) -> bool:
        return any(entry[2] == block for entry in self.index)

    def find(self, block_hash: BlockHash, group: int) -> BlockId | None:
        """The first one registered that still stands."""
        for known_hash, known_group, block in self.index:
            if (known_hash, known_group) == (block_hash, group):
                return block
        return None
