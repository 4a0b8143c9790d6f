"""Chunked local attention: a token looks at the tokens of its own chunk, up to itself.

chunks         |0 ..... k-1|k ..... 2k-1|2k ....      k = attention_chunk_size
token c reads                            [-- c]       blocks wholly before its chunk are dropped
"""

from blockyard.core.arithmetic import align_down, div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.kinds.base import GroupHit, HitSearch, Kind, require_only


class ChunkedLocalAttention(Kind):
    """Keeps the blocks that the current chunk of ``attention_chunk_size`` tokens (at least 1) reaches."""

    __slots__ = ("attention_chunk_size",)

    def __init__(self, block_size: int, is_draft: bool, attention_chunk_size: int) -> None:
        super().__init__(block_size, is_draft, attention_chunk_size)
        self.attention_chunk_size = attention_chunk_size

    @classmethod
    def from_config(cls, config: GroupConfig) -> "ChunkedLocalAttention":
        """See `Kind.from_config`."""
        require_only(config, "attention_chunk_size")
        assert config.attention_chunk_size is not None
        return cls(config.block_size, config.is_draft, config.attention_chunk_size)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All before the chunk of the next token."""
        return align_down(num_computed_tokens, self.attention_chunk_size)

    def max_blocks_at_once(self, max_in_flight_tokens: int, max_model_len: int | None) -> int | None:
        """A chunk and what is in flight."""
        num_tokens = self.attention_chunk_size + max_in_flight_tokens
        if max_model_len is not None:
            num_tokens = min(num_tokens, max_model_len)
        return div_ceil(num_tokens, self.block_size)

    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:  # noqa: ARG002 - no drafts
        """Nulls before the chunk of the position after ``max_tokens``; from there on until the first miss.

        A hit that ends before that chunk, since it had to be aligned down or a chunk begins inside a block,
        is looked for anew: the next token is then one of an earlier chunk, which needs some of the nulls.
        """
        while True:
            num_null = self.num_skipped_blocks(max_tokens)
            hits: list[list[BlockId]] = []
            for position in range(num_null, max_tokens // self.block_size):
                found = search.find(position)
                if found is None:
                    break
                hits.append(found)
            num_tokens = align_down((num_null + len(hits)) * self.block_size, search.alignment)
            if self.num_skipped_blocks(num_tokens) >= num_null:
                break
            max_tokens = num_tokens
        hits = hits[: num_tokens // self.block_size - num_null]
        blocks = [
            [NULL_BLOCK] * num_null + [found[group] for found in hits] for group in range(len(search.groups))
        ]
        return GroupHit(len(blocks[0]) * self.block_size, blocks)
