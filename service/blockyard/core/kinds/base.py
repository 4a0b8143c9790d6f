"""What a pool asks of a kind of layer.

Kinds differ in three questions only: how many blocks does a length need, which blocks may be dropped behind
a position, and what is the longest cached prefix.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from blockyard.core.arithmetic import div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import BlockHash, BlockId, GroupIndex
from blockyard.core.prefix_index import PrefixIndex


@dataclass(frozen=True, slots=True)
class HitSearch:
    """Where a kind looks for a cached prefix.

    Attributes:
        index: The pool's prefix index.
        groups: Groups of this kind with equal sizes: a block counts if all of them cache it.
        block_hashes: One hash a block of the kind's block size.
        alignment: Tokens; a multiple of the block size. A hit's length is a multiple of it.
    """

    index: PrefixIndex
    groups: Sequence[GroupIndex]
    block_hashes: Sequence[BlockHash]
    alignment: int

    def find(self, position: int) -> list[BlockId] | None:
        """Per group, the block that caches the ``position``-th block of the prefix; None if one has none."""
        return self.index.find(self.groups, self.block_hashes[position])


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """A kind of layer with its sizes. Equal values are looked up together.

    ``block_size``: tokens a block, at least 1.
    """

    cuts_to_any_length: ClassVar[bool] = False
    """Whether every shorter part of a hit, from its beginning, is a hit as well."""

    block_size: int

    @classmethod
    @abstractmethod
    def from_config(cls, config: GroupConfig) -> "Kind":
        """The kind that ``config`` describes.

        Raises:
            InvalidRequest: A size is missing, out of range, or not this kind's.
        """

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks that slots for ``num_tokens`` tokens take up."""
        return div_ceil(num_tokens, self.block_size)

    def num_skipped_blocks(self, num_computed_tokens: int) -> int:
        """Leading blocks that no token after the first ``num_computed_tokens`` needs."""
        return self.num_skipped_tokens(num_computed_tokens) // self.block_size

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:  # noqa: ARG002 - most kinds look back without end
        """Leading tokens that no token after the first ``num_computed_tokens`` looks at."""
        return 0

    def max_blocks_at_once(self, max_in_flight_tokens: int, max_model_len: int | None) -> int | None:  # noqa: ARG002
        """The most blocks that one sequence ever holds at a time; None where its length is the only bound."""
        return None

    @abstractmethod
    def longest_hit(self, search: HitSearch, max_tokens: int) -> list[list[BlockId]]:
        """The longest cached prefix of at most ``max_tokens`` tokens.

        Returns:
            Per group of the search, one block a position; null where the block is not needed.
        """


def require_only(config: GroupConfig, *needed: str) -> None:
    """Refuse ``config`` unless exactly the ``needed`` ones of the sizes that belong to some kind are given.

    Raises:
        InvalidRequest: A size is missing, below 1, or of another kind.
    """
    for name in ("sliding_window", "attention_chunk_size"):
        value = getattr(config, name)
        if name not in needed and value is not None:
            raise InvalidRequest.of(f"groups.{name}", f"a {config.kind} group has none: leave it out")
        if name in needed and (value is None or value < 1):
            raise InvalidRequest.of(f"groups.{name}", f"a {config.kind} group needs it, at least 1")
