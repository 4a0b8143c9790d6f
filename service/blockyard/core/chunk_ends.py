"""Where a prompt's chunks should end, so that what recurrent layers keep of it is found again.

A state stands for all tokens before it and for nothing shorter, and of a chunk only the one after its last
token remains. So a chunk that ends anywhere leaves nothing behind that another sequence could begin with:

    tokens     0 ........ 16 ........ 32 ........ 48 .. 51      blocks of 16, a prompt of 51 tokens
    budget 40  |--------------------->|                         down to the last block end within it
    then 40                           |---------->|             never over the place where the same prompt,
    then 40                                       |---->|       or one that goes on from it, would be hit
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.arithmetic import align_down
from blockyard.core.config import GroupConfig
from blockyard.core.kinds import ends_inside_blocks, kind_of


@dataclass(frozen=True, slots=True)
class ChunkEnds:
    """The rule of a pool that keeps states for others.

    Attributes:
        block_size: Tokens; every group ends a block at its multiples.
        hit_size: Tokens; a hit of a prompt that comes again ends at a multiple of it.
        has_drafts: Whether the last matched part of a hit is computed anew, for a draft model.
    """

    block_size: int
    hit_size: int
    has_drafts: bool

    @classmethod
    def of(
        cls,
        groups: Sequence[GroupConfig],
        *,
        scheduler_block_size: int,
        hash_block_size: int,
        enable_prefix_caching: bool,
    ) -> "ChunkEnds | None":
        """The rule of a pool, by what it is made from; None where no chunk's end matters.

        Raises:
            InvalidRequest: A group's kind is unknown or its sizes are wrong.
        """
        if not enable_prefix_caching or not any(kind_of(group).keeps_states for group in groups):
            return None
        is_inside = ends_inside_blocks(groups, hash_block_size)
        return cls(
            block_size=scheduler_block_size,
            hit_size=hash_block_size if is_inside else scheduler_block_size,
            has_drafts=any(group.is_draft for group in groups),
        )

    def last(self, num_prompt_tokens: int) -> int:
        """The longest part of a prompt that the same one, sent again, would find; 0 for none."""
        if not self.has_drafts:
            return align_down(num_prompt_tokens - 1, self.hit_size)
        found = align_down(num_prompt_tokens, self.hit_size) - self.hit_size
        return max(align_down(found, self.block_size), 0)

    def end_of_chunk(self, begin: int, end: int, num_prompt_tokens: int, num_known_tokens: int) -> int:
        """Where a chunk from ``begin`` should end that may reach to ``end``: behind ``begin``, if it may.

        Args:
            begin: Tokens that are computed before it.
            end: At most so many are after it.
            num_prompt_tokens: Of the sequence's prompt.
            num_known_tokens: Its certain tokens, when the chunk is asked for or when it was admitted: its
                prompt, and output of an earlier life.
        """
        for place in (self.last(num_prompt_tokens), align_down(num_known_tokens - 1, self.block_size)):
            if begin < place <= end:
                return place
            if end < place:
                whole = align_down(end, self.block_size)
                return whole if whole > begin else end
        return end
