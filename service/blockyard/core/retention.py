"""Which full blocks are published: of sliding-window groups, perhaps not all.

A hit of such a group needs but the few blocks that a window reaches. Where prompts are long, keeping these at
some places and at the prompt's end leaves most of the cache to others:

    interval 64, blocks of 16, window 33     blocks   . . k k | . . k k | . . k k | . k k
                                                                                prompt's end
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blockyard.core.arithmetic import align_down
from blockyard.core.config import PoolConfig
from blockyard.core.ids import GroupIndex
from blockyard.core.kinds import Kind
from blockyard.core.sequence import Sequence as TokenSequence


@dataclass(frozen=True, slots=True)
class Retention:
    """A pool's rule; every block is kept where ``interval`` is None.

    Attributes:
        kinds: One a group.
        interval: Tokens from place to place; 0 for the prompt's end alone.
        alignment: Tokens; hits end at multiples of it.
        has_drafts: Whether any group is a draft model's.
    """

    kinds: Sequence[Kind]
    interval: int | None
    alignment: int
    has_drafts: bool

    @classmethod
    def of(cls, config: PoolConfig, kinds: Sequence[Kind]) -> "Retention":
        """The rule of a pool."""
        return cls(
            kinds,
            config.prefix_cache_retention_interval,
            config.scheduler_block_size,
            any(kind.is_draft for kind in kinds),
        )

    def kept(self, group: GroupIndex, positions: range, sequence: TokenSequence) -> Iterable[int]:
        """Those of ``positions`` whose blocks are worth publishing."""
        if self.interval is None:
            return positions
        kind = self.kinds[group]
        needed = kind.num_blocks_of_a_hit(drops_last=kind.is_draft)
        if needed is None:
            return positions
        shift = int(kind.is_draft)
        ends = [end // kind.block_size + shift for end in self._replay_ends(sequence.num_prompt_tokens)]
        segment = self.interval // kind.block_size
        return [
            position
            for position in positions
            if (segment and (position - shift) % segment >= segment - needed)
            or any(end - needed <= position < end for end in ends)
        ]

    def _replay_ends(self, num_prompt_tokens: int) -> list[int]:
        """Lengths at which the same prompt, sent again, would be hit."""
        last = align_down(num_prompt_tokens - 1, self.alignment)
        if not self.has_drafts:
            return [last]
        return [last - self.alignment, align_down(num_prompt_tokens, self.alignment) - self.alignment]
