"""Blocks without shortcuts that note the spans of every single one of them in plain dictionaries."""

from collections.abc import Callable, Iterable, Sequence

from blockyard.core.ids import BlockId
from core.naive_blocks import NaiveBlocks, NaiveKey


class WatchedBlocks(NaiveBlocks):
    """As many blocks; ``now_ms`` says when.

    Attributes:
        lifetimes: Each with the block, in the order in which they ended; in ms.
        idle_times: Before an eviction, likewise.
        reuse_gaps: Likewise.
    """

    def __init__(self, num_blocks: int, now_ms: Callable[[], int]) -> None:
        super().__init__(num_blocks)
        self._now_ms = now_ms
        self.restart()

    def restart(self) -> None:
        """Begin to watch: nothing is known of what was before."""
        self._published: dict[BlockId, int] = {}
        self._freed: dict[BlockId, int] = {}
        self.lifetimes: list[tuple[BlockId, int]] = []
        self.idle_times: list[tuple[BlockId, int]] = []
        self.reuse_gaps: list[tuple[BlockId, int]] = []

    def take(self, num_blocks: int) -> list[BlockId]:
        evicted = [block for block in self.free[:num_blocks] if self.is_cached(block)]
        self.lifetimes += self._since(self._published, evicted)
        self.idle_times += self._since(self._freed, evicted)
        return super().take(num_blocks)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        cached = [block for block in self.free if block in blocks and self.is_cached(block)]
        self.reuse_gaps += self._since(self._freed, cached)
        super().touch(blocks)

    def release(self, blocks: Sequence[BlockId]) -> int:
        num_freed = super().release(blocks)
        now_free = [block for block in blocks if block in self.free]
        self._freed.update(dict.fromkeys(now_free, self._now_ms()))
        return num_freed

    def register(self, key: NaiveKey) -> None:
        if not self.is_cached(key.block):
            self._published[key.block] = self._now_ms()
        super().register(key)

    def _since(self, begins: dict[BlockId, int], blocks: Iterable[BlockId]) -> list[tuple[BlockId, int]]:
        return [(block, self._now_ms() - begins[block]) for block in blocks if block in begins]
