"""Full attention: every token looks at all before it, so nothing is dropped and a hit has no holes."""

from typing import ClassVar

from blockyard.core.arithmetic import align_down, div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.kinds.base import GroupHit, HitSearch, Kind, require_only


class FullAttention(Kind):
    """Keeps every block of a sequence."""

    __slots__ = ()

    cuts_to_any_length: ClassVar[bool] = True
    can_split_blocks: ClassVar[bool] = True
    can_be_draft: ClassVar[bool] = True
    drops_blocks: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config: GroupConfig) -> "FullAttention":
        """See `Kind.from_config`."""
        require_only(config)
        return cls(config.block_size, config.is_draft)

    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:
        """From the left until the first miss; and where hits may end there, on into the block that missed."""
        block_size, alignment = self.block_size, search.alignment
        hits = []
        num_blocks = max_tokens // block_size
        for group in search.groups:
            hit = search.index.run(group, list(search.block_hashes[:num_blocks]))
            hits.append(hit)
            num_blocks = len(hit)
        num_tokens = num_blocks * block_size
        hits = [hit[:num_blocks] for hit in hits]
        if alignment < block_size:
            highest = align_down(min(max_tokens, num_tokens + block_size - 1), alignment)
            for boundary in range(highest, num_tokens, -alignment):
                found = search.find_at(boundary)
                if found is not None:
                    num_tokens = boundary
                    for hit, block in zip(hits, found, strict=True):
                        hit.append(block)
                    break
        if drops_last and num_tokens:
            num_tokens = max(num_tokens - alignment, 0)
        num_tokens = align_down(num_tokens, alignment)
        return GroupHit(num_tokens, [hit[: div_ceil(num_tokens, block_size)] for hit in hits])
