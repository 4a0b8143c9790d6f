"""Bugs planted in how it is chosen what to evict, where that knows conversations."""

from typing import Any

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.adaptive_queue import AdaptiveQueue
from blockyard.core.ids import BlockId
from blockyard.core.packing import pack_vector, unpack_vector
from blockyard.core.pool import Pool


class HitsUncounted(AdaptiveQueue):
    __slots__ = ()

    def note_hit(self, blocks: list[BlockId]) -> None:
        known = [int(self._known[block]) for block in blocks]
        super().note_hit(blocks)
        for block, its in zip(blocks, known, strict=True):
            self._known[block] = its


class HitsKnownWorse(AdaptiveQueue):
    __slots__ = ()

    def note_hit(self, blocks: list[BlockId]) -> None:
        super().note_hit(blocks)
        for block in blocks:
            self._known[block] = int(self._known[block]) & ~0x3  # as if it had come in bulk


class HeadEvictedBeforeTail(AdaptiveQueue):
    __slots__ = ()

    def append(self, blocks: list[BlockId]) -> None:
        super().append(blocks[::-1])


class CountsLostInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        for store in state["stores"]:
            known = unpack_vector(store["queue"]["known"])
            once = [(1 << 8) | (int(its) & 0xFF) for its in known]
            store["queue"]["known"] = pack_vector(vec[i64](once))
        return state


EVICTION_BUGS = (HitsUncounted, HitsKnownWorse, HeadEvictedBeforeTail, CountsLostInSnapshot)
"""Those that show only where eviction is adaptive."""
