"""Full attention: every token looks at all before it, so nothing is dropped and a hit has no holes."""

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from blockyard.core.arithmetic import align_down
from blockyard.core.config import GroupConfig
from blockyard.core.ids import BlockId
from blockyard.core.kinds.base import HitSearch, Kind, require_only
from blockyard.core.prefix_index import first_block


@dataclass(frozen=True, slots=True)
class FullAttention(Kind):
    """Keeps every block of a sequence."""

    cuts_to_any_length: ClassVar[bool] = True

    @classmethod
    def from_config(cls, config: GroupConfig) -> "FullAttention":
        """See `Kind.from_config`."""
        require_only(config)
        return cls(config.block_size)

    def longest_hit(self, search: HitSearch, max_tokens: int) -> list[list[BlockId]]:
        """From the left until the first miss."""
        hits: list[list[BlockId]] = []
        num_blocks = max_tokens // self.block_size
        for group in search.groups:
            lookup = search.index.table(group).get
            hit: list[BlockId] = []
            for block_hash in islice(search.block_hashes, num_blocks):
                entry = lookup(block_hash)
                if entry is None:
                    break
                hit.append(first_block(entry))
            hits.append(hit)
            num_blocks = len(hit)
        num_blocks = align_down(num_blocks * self.block_size, search.alignment) // self.block_size
        return [hit[:num_blocks] for hit in hits]
