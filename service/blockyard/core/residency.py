"""How long what is cached stays, and how long it waits for the next hit: of a sample of a pool's blocks.

    published     freed       hit        freed     evicted
        |-----------|----------|-----------|----------|
                    |reuse gap-|           |idle time-|
        |------------------ lifetime -----------------|

The sample is fixed: every `SAMPLE_EVERY`-th block from block 1 on. No reply depends on it, and it is in no
snapshot: a restored pool begins anew, and counts a span only if it has seen both of its ends. What is kept
beside the counts are two timestamps for each block of the sample.
"""

from collections.abc import Iterable

from blockyard.core.histogram import Histogram
from blockyard.core.ids import BlockId

SAMPLE_EVERY = 127
"""A prime, so that no pattern in how blocks are given out meets it."""

BOUNDS_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)


class Residency:
    """Watches a sample of ``num_blocks`` blocks of which none has content; of 0 blocks, none.

    Times are those of the pool's commands: `now_ms` is set before each.

    Args:
        num_blocks: Blocks of the pool, the null block included.
        sample_every: Watch the blocks that lie so far apart.

    Attributes:
        sample: The blocks that are watched.
        now_ms: The time of the command that is being done.
        lifetime_s: From when a block got the first of the hashes that it carries until it was evicted: taken
            for other content. One that was found by a part of its tokens begins anew once it is full, as does
            one that another's hashes move to. Content that is forgotten otherwise is not counted: by a reset,
            in a new epoch, where its hashes have moved away, or where it was not copied after all.
        idle_before_evict_s: From when nobody held a block with content any more until it was evicted.
        reuse_gap_s: From when nobody held a block with content any more until a hit held it again.
    """

    __slots__ = (
        "_idle_since_ms",
        "_published_ms",
        "idle_before_evict_s",
        "lifetime_s",
        "now_ms",
        "reuse_gap_s",
        "sample",
    )

    def __init__(self, num_blocks: int, sample_every: int = SAMPLE_EVERY) -> None:
        self.sample = frozenset(range(1, num_blocks, sample_every))
        self.now_ms = 0
        self.lifetime_s = Histogram(BOUNDS_S)
        self.idle_before_evict_s = Histogram(BOUNDS_S)
        self.reuse_gap_s = Histogram(BOUNDS_S)
        self._published_ms: dict[BlockId, int] = {}
        self._idle_since_ms: dict[BlockId, int] = {}

    def note_published(self, blocks: Iterable[BlockId]) -> None:
        """``blocks`` got a hash, the first that each carries."""
        self._published_ms.update(dict.fromkeys(self.sample.intersection(blocks), self.now_ms))

    def note_idle(self, blocks: Iterable[BlockId]) -> None:
        """Nobody holds ``blocks``, which have content, any more."""
        self._idle_since_ms.update(dict.fromkeys(self.sample.intersection(blocks), self.now_ms))

    def note_held(self, blocks: Iterable[BlockId]) -> None:
        """A hit holds ``blocks``, which were idle."""
        for block in self.sample.intersection(blocks):
            self._observe(self.reuse_gap_s, self._idle_since_ms.pop(block, None))

    def note_evicted(self, blocks: Iterable[BlockId]) -> None:
        """``blocks``, which have content, are taken for other."""
        for block in self.sample.intersection(blocks):
            self._observe(self.idle_before_evict_s, self._idle_since_ms.pop(block, None))
            self._observe(self.lifetime_s, self._published_ms.pop(block, None))

    def note_forgotten(self, block: BlockId) -> None:
        """``block`` lost its content, and is not evicted."""
        self._published_ms.pop(block, None)
        self._idle_since_ms.pop(block, None)

    def note_all_forgotten(self) -> None:
        """All blocks lost theirs."""
        self._published_ms.clear()
        self._idle_since_ms.clear()

    def histograms(self) -> dict[str, Histogram]:
        """What was counted so far, by the attribute's name: copies."""
        return {
            "lifetime_s": self.lifetime_s.copy(),
            "idle_before_evict_s": self.idle_before_evict_s.copy(),
            "reuse_gap_s": self.reuse_gap_s.copy(),
        }

    def _observe(self, histogram: Histogram, begin_ms: int | None) -> None:
        if begin_ms is not None:
            histogram.observe((self.now_ms - begin_ms) / 1_000)
