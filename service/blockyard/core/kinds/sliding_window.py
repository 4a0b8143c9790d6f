"""Sliding window: a token looks at the last ``sliding_window`` tokens, itself included.

positions      0 ........ c-w+1 ........ c        w = sliding_window
token c reads             [--------------]        blocks wholly before c-w+1 are dropped
"""

from typing import ClassVar

from blockyard.core.arithmetic import div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.kinds.base import GroupHit, HitSearch, Kind, require_only


class SlidingWindow(Kind):
    """Keeps the blocks that a window of ``sliding_window`` tokens (at least 1) reaches.

    ``extra_retained_tokens`` behind it are kept as well, for drafts that compute the last tokens again; a hit
    does not need them.
    """

    __slots__ = ("extra_retained_tokens", "sliding_window")

    can_be_draft: ClassVar[bool] = True

    def __init__(
        self, block_size: int, is_draft: bool, sliding_window: int, extra_retained_tokens: int
    ) -> None:
        super().__init__(block_size, is_draft, sliding_window, extra_retained_tokens)
        self.sliding_window = sliding_window
        self.extra_retained_tokens = extra_retained_tokens

    @classmethod
    def from_config(cls, config: GroupConfig) -> "SlidingWindow":
        """See `Kind.from_config`."""
        require_only(config, "sliding_window", optional=("extra_retained_tokens",))
        assert config.sliding_window is not None
        return cls(config.block_size, config.is_draft, config.sliding_window, config.extra_retained_tokens)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All but the window of the next token and what is retained."""
        return max(0, num_computed_tokens - self.sliding_window - self.extra_retained_tokens + 1)

    def first_seen_token(self, num_computed_tokens: int) -> int:
        """The first one of the next token's window."""
        return max(0, num_computed_tokens - self.sliding_window + 1)

    def max_blocks_at_once(self, max_in_flight_tokens: int, max_model_len: int | None) -> int | None:
        """The window and what is in flight; one more, as the window need not begin with a block."""
        num_tokens = self.sliding_window - 1 + self.extra_retained_tokens + max_in_flight_tokens
        if max_model_len is not None:
            num_tokens = min(num_tokens, max_model_len)
        return div_ceil(num_tokens, self.block_size) + 1

    def num_blocks_of_a_hit(self, *, drops_last: bool) -> int:
        """Those that a window reaches; see `Kind.num_blocks_of_a_hit`."""
        return max(div_ceil(self.sliding_window - 1, self.block_size) + drops_last, 1)

    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:
        """The rightmost run of blocks that covers a window and ends aligned; nulls stand left of it.

        If none is long enough, the run that reaches back to the first block: there is nothing before it.
        """
        block_size = self.block_size
        needed = self.num_blocks_of_a_hit(drops_last=drops_last)
        hits: list[list[BlockId]] = []  # the run so far, its last position first
        start = end = max_tokens // block_size
        while start > 0 and len(hits) < needed:
            start -= 1
            found = search.find(start)
            if found is None or (not hits and (start + 1 - drops_last) * block_size % search.alignment):
                hits, end = [], start
            else:
                hits.append(found)
        if drops_last and hits:
            del hits[0]
            end -= 1
        hits.reverse()
        blocks = [
            [NULL_BLOCK] * (end - len(hits)) + [found[group] for found in hits]
            for group in range(len(search.groups))
        ]
        return GroupHit(end * block_size, blocks)
