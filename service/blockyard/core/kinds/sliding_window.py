"""Sliding window: a token looks at the last ``sliding_window`` tokens, itself included.

positions      0 ........ c-w+1 ........ c        w = sliding_window
token c reads             [--------------]        blocks wholly before c-w+1 are dropped
"""

from dataclasses import dataclass

from blockyard.core.arithmetic import div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.kinds.base import HitSearch, Kind, require_only


@dataclass(frozen=True, slots=True)
class SlidingWindow(Kind):
    """Keeps the blocks that a window of ``sliding_window`` tokens (at least 1) reaches."""

    sliding_window: int

    @classmethod
    def from_config(cls, config: GroupConfig) -> "SlidingWindow":
        """See `Kind.from_config`."""
        require_only(config, "sliding_window")
        assert config.sliding_window is not None
        return cls(config.block_size, config.sliding_window)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All but the window of the next token."""
        return max(0, num_computed_tokens - self.sliding_window + 1)

    def max_blocks_at_once(self, max_in_flight_tokens: int, max_model_len: int | None) -> int | None:
        """The window and what is in flight; one more, as the window need not begin with a block."""
        num_tokens = self.sliding_window - 1 + max_in_flight_tokens
        if max_model_len is not None:
            num_tokens = min(num_tokens, max_model_len)
        return div_ceil(num_tokens, self.block_size) + 1

    def longest_hit(self, search: HitSearch, max_tokens: int) -> list[list[BlockId]]:
        """The rightmost run of blocks that covers a window and ends aligned; nulls stand left of it.

        If none is long enough, the run that reaches back to the first block: there is nothing before it.
        """
        needed = max(div_ceil(self.sliding_window - 1, self.block_size), 1)
        hits: list[list[BlockId]] = []  # the run so far, its last position first
        start = end = max_tokens // self.block_size
        while start > 0 and len(hits) < needed:
            found = search.find(start - 1)
            start -= 1
            if found is None or (not hits and (start + 1) * self.block_size % search.alignment):
                hits, end = [], start
            else:
                hits.append(found)
        hits.reverse()
        return [
            [NULL_BLOCK] * (end - len(hits)) + [found[group] for found in hits]
            for group in range(len(search.groups))
        ]
