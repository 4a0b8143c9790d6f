"""Bugs planted in the kinds of a pool's groups, each of which the machine must find."""

from collections.abc import Callable
from typing import Any

from hypothesis.strategies import SearchStrategy

from blockyard.core.config import PoolConfig
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.kinds.base import Demand, GroupHit, Kind, Progress, Take
from blockyard.core.kinds.chunked_local import ChunkedLocalAttention
from blockyard.core.kinds.fixed import CrossAttention, HotBlocks, OneBlock, ResidentBlocks
from blockyard.core.kinds.full_attention import FullAttention
from blockyard.core.kinds.mamba import AlignedStates, RunningState
from blockyard.core.kinds.reference_window import ReferenceWindow
from blockyard.core.kinds.sliding_window import SlidingWindow
from blockyard.core.pool import Pool
from blockyard.core.sequence import BlockTable
from core.drawn_pools import STATE_POOLS, pool_configs


class FullDraftsDropNothing(FullAttention):
    __slots__ = ()

    def longest_hit(self, *asked: Any, drops_last: bool) -> GroupHit:  # noqa: ARG002
        return super().longest_hit(*asked, drops_last=False)


class SlidingDraftsDropNothing(SlidingWindow):
    __slots__ = ()

    def longest_hit(self, *asked: Any, drops_last: bool) -> GroupHit:  # noqa: ARG002
        return super().longest_hit(*asked, drops_last=False)


class RetainedTokensForgotten(SlidingWindow):
    __slots__ = ()

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.sliding_window + 1)


class ChunksDroppedLate(ChunkedLocalAttention):
    __slots__ = ()

    def drop(self, table: BlockTable, progress: Progress) -> list[BlockId]:
        num_computed = progress.num_computed_tokens - self.attention_chunk_size
        return super().drop(table, Progress(max(num_computed, 0), progress.num_prompt_tokens))


class PromptDropped(ReferenceWindow):
    __slots__ = ()

    def droppable(self, progress: Progress) -> range:
        return range(max(progress.num_computed_tokens - self.rswa_window, 0) // self.block_size)


class EncoderForgotten(CrossAttention):
    __slots__ = ()

    def num_blocks(self, demand: Demand) -> int:
        return -(-demand.num_slots // self.block_size)


class BufferGrows(OneBlock):
    __slots__ = ()

    def num_blocks(self, demand: Demand) -> int:
        return -(-demand.num_slots // self.block_size)


class OneHotBlock(HotBlocks):
    __slots__ = ()

    def num_blocks(self, demand: Demand) -> int:  # noqa: ARG002
        return 1


class HitsResident(ResidentBlocks):
    __slots__ = ()

    def table_of_hit(self, cached: list[BlockId], num_tokens: int) -> BlockTable:  # noqa: ARG002
        return BlockTable(list(cached))


class StateDropped(RunningState):
    __slots__ = ()

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens


class StatesNotDropped(AlignedStates):
    __slots__ = ()

    def drop(self, *_: object) -> list[BlockId]:
        return []


class StatesForLookahead(AlignedStates):
    __slots__ = ()

    def num_blocks(self, demand: Demand) -> int:
        return super().num_blocks(Demand(demand.num_slots, demand.num_slots, demand.num_encoder_tokens))


class SpeculativeBlocksLeftBehind(AlignedStates):
    __slots__ = ()

    def grow(self, table: BlockTable, demand: Demand, take: Take) -> list[BlockId]:
        before = list(table.block_ids)
        appended = super().grow(table, demand, take)
        for position, block in enumerate(before):
            if table.block_ids[position] != block:
                table.block_ids[table.block_ids.index(block)] = NULL_BLOCK
                table.block_ids[position] = block
        return appended


def plant(bug: type[Kind]) -> Callable[[Pool], None]:
    """What makes a pool's groups of the kind that ``bug`` is a subclass of instances of it."""

    def plant_in(pool: Pool) -> None:
        allocator = pool.sequences._allocator
        for kind in (*allocator._kinds, *(each.kind for each in allocator._lookup._sets)):
            if type(kind) is bug.__base__:
                object.__setattr__(kind, "__class__", bug)

    return plant_in


BROKEN_KINDS: dict[type[Kind], SearchStrategy[PoolConfig]] = {
    FullDraftsDropNothing: pool_configs(("full_attention",), drafts=True),
    SlidingDraftsDropNothing: pool_configs(("sliding_window",), drafts=True),
    RetainedTokensForgotten: pool_configs(("sliding_window",)),
    ChunksDroppedLate: pool_configs(("chunked_local_attention",)),
    PromptDropped: pool_configs(("rswa",)),
    EncoderForgotten: pool_configs(("cross_attention",), caching=False),
    BufferGrows: pool_configs(("circular_buffer", "kpool_tail")),
    OneHotBlock: pool_configs(("hot",)),
    HitsResident: pool_configs(("full_attention", "resident")),
    StateDropped: pool_configs(("mamba",), caching=False),
    StatesNotDropped: pool_configs(STATE_POOLS, caching=True),
    StatesForLookahead: pool_configs(STATE_POOLS, caching=True),
    SpeculativeBlocksLeftBehind: pool_configs(STATE_POOLS, caching=True),
}
"""And the pools where they are looked for."""

KIND_BUGS = {bug.__name__: plant(bug) for bug in BROKEN_KINDS}
POOLS_OF_KIND_BUGS = {bug.__name__: pools for bug, pools in BROKEN_KINDS.items()}
