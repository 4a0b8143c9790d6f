"""Recurrent layers (Mamba and other linear attention): a block is the state after some tokens.

Mode ``none`` keeps the running state alone. Mode ``align`` keeps, for a while, the states at the ends of
blocks as well, where a later sequence may go on. Its table is indexed by position, of which few have a state:

    tokens     0 ..... 16 ..... 32 ..... 48 ...        block size 16, 40 tokens, 2 speculative blocks
    table      null    S        running   s    s       S: the state after 32 tokens; s: of speculated ones
"""

from typing import ClassVar

from blockyard.core.arithmetic import align_down, div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.kinds.base import Demand, GroupHit, HitSearch, Kind, Progress, Take, require_only
from blockyard.core.sequence import BlockTable


class RecurrentStates(Kind):
    """A running state, and ``num_speculative_blocks`` behind it: those after tokens that were speculated."""

    __slots__ = ("num_speculative_blocks",)

    overwrites_blocks: ClassVar[bool] = True

    def __init__(self, block_size: int, is_draft: bool, num_speculative_blocks: int) -> None:
        super().__init__(block_size, is_draft, num_speculative_blocks)
        self.num_speculative_blocks = num_speculative_blocks

    @classmethod
    def from_config(cls, config: GroupConfig) -> "RecurrentStates":
        """See `Kind.from_config`: of the mode that ``config`` names."""
        require_only(config, optional=("mamba_cache_mode", "num_speculative_blocks"))
        mode = _MODES.get(config.mamba_cache_mode or "none")
        if mode is None:
            raise InvalidRequest.of("groups.mamba_cache_mode", f"is none of {', '.join(_MODES)}")
        return mode(config.block_size, config.is_draft, config.num_speculative_blocks)

    def num_slots(self, table: BlockTable) -> int:
        """Those up to the end of the running state's block."""
        return (len(table.block_ids) - self.num_speculative_blocks) * self.block_size

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All but the last: the state after it goes on."""
        return max(num_computed_tokens - 1, 0)

    def can_go_back(self, table: BlockTable, num_tokens: int, num_taken_back: int) -> bool:
        """See `Kind.can_go_back`: to a speculative state, or to one that still stands."""
        return num_taken_back <= self.num_speculative_blocks or Kind.can_go_back(
            self, table, num_tokens, num_taken_back
        )

    def num_shared_blocks(self, table: BlockTable, num_tokens: int) -> int:
        """Those before the running state, which lies in its block or in one of the speculative ones."""
        return min(self.num_skipped_blocks(num_tokens), len(table.block_ids))

    def open_position(self, num_tokens: int) -> int | None:  # noqa: ARG002 - of any length
        """None: the running state is a fork's own."""
        return None

    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:
        """Never asked of a mode in which nothing is found: see `Kind.is_cacheable`."""
        raise NotImplementedError


class RunningState(RecurrentStates):
    """Mode ``none``: no states but the running one and the speculative ones."""

    __slots__ = ()

    is_cacheable: ClassVar[bool] = False
    allows_hits: ClassVar[bool] = False

    def num_blocks(self, demand: Demand) -> int:
        """Positions up to the running state's, and the speculative ones."""
        return div_ceil(demand.num_slots, self.block_size) + self.num_speculative_blocks


class AlignedStates(RecurrentStates):
    """Mode ``align``: those at the ends of blocks as well."""

    __slots__ = ()

    can_split_blocks: ClassVar[bool] = True
    keeps_states: ClassVar[bool] = True

    def num_blocks(self, demand: Demand) -> int:
        """Positions up to the running state's, and the speculative ones; speculated tokens need no others."""
        return div_ceil(demand.num_tokens, self.block_size) + self.num_speculative_blocks

    def num_missing(self, table: BlockTable, demand: Demand, at_most: int | None = None) -> int:  # noqa: ARG002
        """One for the running state, and at first the speculative ones: these move on with it later."""
        num_missing = max(self.num_blocks(demand) - len(table.block_ids), 0)
        return min(num_missing, 1 if table.has_states else 1 + self.num_speculative_blocks)

    def grow(self, table: BlockTable, demand: Demand, take: Take) -> list[BlockId]:
        """Nulls up to the running state's new position, then states: those that are speculative move on."""
        block_ids, num_speculative = table.block_ids, self.num_speculative_blocks
        length, required = len(block_ids), self.num_blocks(demand)
        if required <= length:
            return []
        running = required - num_speculative - 1
        block_ids += [NULL_BLOCK] * (running - length)
        if table.has_states:
            for position in range(length - num_speculative, min(length, running)):
                block_ids.append(block_ids[position])
                block_ids[position] = NULL_BLOCK
        table.has_states = True
        block_ids += take(required - len(block_ids))
        return block_ids[length:]

    def has_droppable(self, table: BlockTable, progress: Progress) -> bool:
        """Whether positions are to be retired."""
        end = min(self.num_skipped_blocks(progress.num_computed_tokens), len(table.block_ids))
        return end > table.num_retired

    def drop(self, table: BlockTable, progress: Progress) -> list[BlockId]:
        """States before the one that goes on; the one that this was copied from is among them."""
        block_ids = table.block_ids
        end = min(self.num_skipped_blocks(progress.num_computed_tokens), len(block_ids))
        dropped = [
            block_ids[p] for p in reversed(range(table.num_retired, end)) if block_ids[p] != NULL_BLOCK
        ]
        block_ids[table.num_retired : end] = [NULL_BLOCK] * max(end - table.num_retired, 0)
        table.num_retired = max(table.num_retired, end)
        return dropped

    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:  # noqa: ARG002 - no drafts
        """The state after the most tokens; nothing before it is needed."""
        for num_tokens in range(align_down(max_tokens, search.alignment), 0, -search.alignment):
            found = search.find_at(num_tokens)
            if found is not None and search.unripe.isdisjoint(found):
                nulls = [NULL_BLOCK] * (div_ceil(num_tokens, self.block_size) - 1)
                return GroupHit(num_tokens, [[*nulls, block] for block in found])
        return GroupHit(0, [[] for _ in search.groups])

    def table_of_hit(self, cached: list[BlockId], num_tokens: int) -> BlockTable:
        """The state that was found, as the one that the running one is copied from."""
        return BlockTable(list(cached), num_tokens // self.block_size)


_MODES: dict[str, type[RecurrentStates]] = {"none": RunningState, "align": AlignedStates}
"""By ``mamba_cache_mode``."""
