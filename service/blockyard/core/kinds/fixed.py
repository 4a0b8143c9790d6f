"""Layers whose blocks are never found by another sequence, and are few or given once."""

from abc import abstractmethod
from typing import ClassVar

from blockyard.core.arithmetic import div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.kinds.base import ANY_LENGTH, Demand, GroupHit, HitSearch, Kind, require_only
from blockyard.core.sequence import BlockTable


class _Uncached(Kind):
    """A kind that is no part of a hit."""

    __slots__ = ()

    is_cacheable: ClassVar[bool] = False
    drops_blocks: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config: GroupConfig) -> "_Uncached":
        """See `Kind.from_config`."""
        require_only(config)
        return cls(config.block_size, config.is_draft)

    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:
        """Never asked: see `is_cacheable`."""
        raise NotImplementedError


class _GivenOnce(_Uncached):
    """A kind whose blocks are all given at a sequence's beginning."""

    __slots__ = ()

    @abstractmethod
    def num_blocks(self, demand: Demand) -> int:
        """See `Kind.num_blocks`."""

    def num_slots(self, table: BlockTable) -> int:  # noqa: ARG002 - what was given at first
        """For all tokens."""
        return ANY_LENGTH

    def num_shared_blocks(self, table: BlockTable, num_tokens: int) -> int:  # noqa: ARG002 - of any length
        """All, unless they are written over: then none."""
        return 0 if self.overwrites_blocks else len(table.block_ids)

    def open_position(self, num_tokens: int) -> int | None:  # noqa: ARG002 - of any length
        """None: no block goes with the last tokens."""
        return None


class CrossAttention(_GivenOnce):
    """Blocks for the encoder's output, given at a sequence's beginning. No prefix of tokens stands for it."""

    __slots__ = ()

    allows_hits: ClassVar[bool] = False

    def num_blocks(self, demand: Demand) -> int:
        """As the encoder's tokens need."""
        return div_ceil(demand.num_encoder_tokens, self.block_size)


class OneBlock(_GivenOnce):
    """A block that is written in a circle: of a circular buffer, or an indexer's tail."""

    __slots__ = ()

    overwrites_blocks: ClassVar[bool] = True

    def num_blocks(self, demand: Demand) -> int:  # noqa: ARG002 - whatever the length
        """One."""
        return 1


class HotBlocks(_GivenOnce):
    """A buffer of ``num_blocks_per_request`` blocks (at least 1) for pages that lie on the host."""

    __slots__ = ("num_blocks_per_request",)

    overwrites_blocks: ClassVar[bool] = True

    def __init__(self, block_size: int, is_draft: bool, num_blocks_per_request: int) -> None:
        super().__init__(block_size, is_draft, num_blocks_per_request)
        self.num_blocks_per_request = num_blocks_per_request

    @classmethod
    def from_config(cls, config: GroupConfig) -> "HotBlocks":
        """See `Kind.from_config`."""
        require_only(config, "num_blocks_per_request")
        assert config.num_blocks_per_request is not None
        return cls(config.block_size, config.is_draft, config.num_blocks_per_request)

    def num_blocks(self, demand: Demand) -> int:  # noqa: ARG002 - whatever the length
        """See `num_blocks_per_request`."""
        return self.num_blocks_per_request


class ResidentBlocks(_Uncached):
    """Blocks of tokens that are computed now, until their pages lie on the host."""

    __slots__ = ()

    drops_blocks: ClassVar[bool] = True

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """All: what is computed lies on the host."""
        return num_computed_tokens

    def table_of_hit(self, cached: list[BlockId], num_tokens: int) -> BlockTable:  # noqa: ARG002 - none is
        """Nulls: the hit lies on the host."""
        return BlockTable([NULL_BLOCK] * self.num_skipped_blocks(num_tokens))

    def max_blocks_at_once(self, max_in_flight_tokens: int, max_model_len: int | None) -> int | None:
        """What is in flight; one more, as it need not begin with a block."""
        num_tokens = (
            max_in_flight_tokens if max_model_len is None else min(max_in_flight_tokens, max_model_len)
        )
        return div_ceil(num_tokens, self.block_size) + 1
