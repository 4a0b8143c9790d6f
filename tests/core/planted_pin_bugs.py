"""Bugs planted in how pins keep what they are there to keep."""

from typing import Any

from blockyard.core.block_store import BlockStore
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, GroupIndex
from blockyard.core.pool import Pool


class PinnedEvictedFirst(BlockStore):
    __slots__ = ()

    def take(self, num_blocks: int) -> list[BlockId]:
        if self.soft_pins is not None:
            self.queue.prepend(self.soft_pins.pop(min(num_blocks, len(self.soft_pins))))
        return super().take(num_blocks)


class PinnedLaterNotKept(BlockStore):
    __slots__ = ()

    def _add(
        self,
        blocks: list[BlockId],
        group: GroupIndex,
        block_hashes: list[BlockHash],
        parent: BlockId = NULL_BLOCK,
    ) -> None:
        soft_pins, self.soft_pins = self.soft_pins, None
        super()._add(blocks, group, block_hashes, parent)
        self.soft_pins = soft_pins


class HardPinsLostInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        pins = state["pins"]["pins"]
        state["pins"]["pins"] = [pin for pin in pins if not pin["hard"]]
        return state


PIN_BUGS = (PinnedEvictedFirst, PinnedLaterNotKept, HardPinsLostInSnapshot)
"""Those that show only where somebody pins."""
