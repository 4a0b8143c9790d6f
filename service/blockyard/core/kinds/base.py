"""What a pool asks of a kind of layer.

Kinds differ in three questions only: how does a table grow with a sequence, which of its blocks may be
dropped behind a position, and what is the longest cached prefix. Most of them answer alike; the defaults here
are those of a table with a block for every ``block_size`` tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from blockyard.core.arithmetic import div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, GroupIndex
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.sequence import BlockTable

Take = Callable[[int], list[BlockId]]
"""Hands out so many blocks."""

ANY_LENGTH: Final = 2**62
"""More tokens than any sequence has."""


class Demand:
    """The length that a sequence's tables have to serve.

    Attributes:
        num_tokens: Tokens, cached and computed ones and those to compute now.
        num_slots: The same with slots for speculated tokens.
        num_encoder_tokens: Tokens of the encoder's input.
    """

    __slots__ = ("num_encoder_tokens", "num_slots", "num_tokens")

    def __init__(self, num_tokens: int, num_slots: int, num_encoder_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.num_slots = num_slots
        self.num_encoder_tokens = num_encoder_tokens


class Progress(NamedTuple):
    """How far a sequence has come.

    Attributes:
        num_computed_tokens: No token before the next one is computed again.
        num_prompt_tokens: Of its prompt.
    """

    num_computed_tokens: int
    num_prompt_tokens: int


class GroupHit(NamedTuple):
    """A cached prefix of ``num_tokens`` tokens: per group of a search, a block a position or null."""

    num_tokens: int
    blocks: list[list[BlockId]]


@dataclass(frozen=True, slots=True)
class HitSearch:
    """Where a kind looks for a cached prefix.

    Attributes:
        index: The pool's prefix index.
        groups: Groups of this kind with equal sizes: a block counts if all of them cache it.
        block_hashes: One hash a block of the kind's block size.
        fine_hashes: One hash a hash block.
        hash_block_size: Tokens a hash block.
        alignment: Tokens; a hit's length is a multiple of it. Hits may end inside blocks larger than it.
        unripe: Blocks whose state is written in this very step: no hits yet.
    """

    index: PrefixIndex
    groups: Sequence[GroupIndex]
    block_hashes: Sequence[BlockHash]
    fine_hashes: Sequence[BlockHash]
    hash_block_size: int
    alignment: int
    unripe: AbstractSet[BlockId]

    def find(self, position: int) -> list[BlockId] | None:
        """Per group, the block that caches the ``position``-th block of the prefix; None if one has none."""
        return self.index.find(self.groups, self.block_hashes[position])

    def find_at(self, num_tokens: int) -> list[BlockId] | None:
        """Per group, the block that caches the prefix of ``num_tokens`` tokens; None if one has none."""
        return self.index.find(self.groups, self.fine_hashes[num_tokens // self.hash_block_size - 1])


class Kind(ABC):
    """A kind of layer with its sizes, which never change. Equal ones are looked up together.

    No dataclass: compiled, one would take what is said of the class for its fields.

    Args:
        block_size: Tokens a block, at least 1.
        is_draft: A draft model's: its last matched block is computed anew.
        further_sizes: What else has to be equal.
    """

    __slots__ = ("_sizes", "block_size", "is_draft")

    cuts_to_any_length: ClassVar[bool] = False
    """Whether every shorter part of a hit, from its beginning, is a hit as well."""
    is_cacheable: ClassVar[bool] = True
    """Whether blocks can be found by later sequences at all. If not, a hit needs none of them."""
    allows_hits: ClassVar[bool] = True
    """Whether a sequence may begin with a hit at all: not where what is not cached would be lacking."""
    can_split_blocks: ClassVar[bool] = False
    """Whether a hit may end inside a block, of which the sequence then gets a copy."""
    keeps_states: ClassVar[bool] = False
    """Whether a block that is found is a state after some tokens, and nothing of the tokens before them."""
    drops_blocks: ClassVar[bool] = True
    """Whether a sequence ever needs some of its blocks no more."""
    can_be_draft: ClassVar[bool] = False
    """Whether a hit can end a block earlier, so that a drafter's last block is computed anew."""
    overwrites_blocks: ClassVar[bool] = False
    """Whether steps write over what earlier ones wrote: then forks get copies of what they do not share."""

    def __init__(self, block_size: int, is_draft: bool, *further_sizes: int) -> None:
        self.block_size = block_size
        self.is_draft = is_draft
        self._sizes = (type(self), block_size, is_draft, further_sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._sizes == other._sizes

    def __hash__(self) -> int:
        return hash(self._sizes)

    @classmethod
    @abstractmethod
    def from_config(cls, config: GroupConfig) -> "Kind":
        """The kind that ``config`` describes.

        Raises:
            InvalidRequest: A size is missing, out of range, or not this kind's.
        """

    # How a table grows

    def num_blocks(self, demand: Demand) -> int:
        """Entries of a table that serves ``demand``."""
        return div_ceil(demand.num_slots, self.block_size)

    def num_slots(self, table: BlockTable) -> int:
        """Tokens that ``table`` serves as it is, speculated ones included."""
        return len(table.block_ids) * self.block_size

    def num_missing(self, table: BlockTable, demand: Demand, at_most: int | None = None) -> int:
        """Blocks to take for ``table`` to serve ``demand``; ``at_most`` bounds the entries counted."""
        num_blocks = self.num_blocks(demand)
        if at_most is not None:
            num_blocks = min(num_blocks, at_most)
        return max(num_blocks - len(table.block_ids), 0)

    def grow(self, table: BlockTable, demand: Demand, take: Take) -> list[BlockId]:
        """Let ``table`` serve ``demand`` with `num_missing` further blocks; returns the entries appended."""
        num_missing = self.num_missing(table, demand)
        blocks = take(num_missing) if num_missing else []
        table.block_ids += blocks
        return blocks

    def max_blocks_at_once(self, max_in_flight_tokens: int, max_model_len: int | None) -> int | None:  # noqa: ARG002
        """The most blocks that one sequence ever holds at a time; None where its length is the only bound."""
        return None

    # What is dropped

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:  # noqa: ARG002 - most kinds look back without end
        """Leading tokens that no token after the first ``num_computed_tokens`` looks at."""
        return 0

    def num_skipped_blocks(self, num_computed_tokens: int) -> int:
        """Leading blocks that no token after the first ``num_computed_tokens`` needs."""
        return self.num_skipped_tokens(num_computed_tokens) // self.block_size

    def droppable(self, progress: Progress) -> range:
        """Positions that nothing needs any more."""
        return range(self.num_skipped_blocks(progress.num_computed_tokens))

    def has_droppable(self, table: BlockTable, progress: Progress) -> bool:
        """Whether `drop` would find anything to do."""
        droppable = self.droppable(progress)
        last = min(droppable.stop, len(table.block_ids)) - 1
        return last >= droppable.start and table.block_ids[last] != NULL_BLOCK

    def drop(self, table: BlockTable, progress: Progress) -> list[BlockId]:
        """Replace what is needed no more by nulls, from the last one back to the null before them.

        Returns:
            What was dropped, in the order in which to release it.
        """
        block_ids = table.block_ids
        droppable = self.droppable(progress)
        position = min(droppable.stop, len(block_ids)) - 1
        dropped: list[BlockId] = []
        while position >= droppable.start and block_ids[position] != NULL_BLOCK:
            dropped.append(block_ids[position])
            block_ids[position] = NULL_BLOCK
            position -= 1
        return dropped

    def first_seen_token(self, num_computed_tokens: int) -> int:
        """The first token that the one after ``num_computed_tokens`` looks at, but for those kept for ever.

        It may stand behind `num_skipped_tokens`, where more is retained than is looked at.
        """
        return self.num_skipped_tokens(num_computed_tokens)

    def can_go_back(self, table: BlockTable, num_tokens: int, num_taken_back: int) -> bool:  # noqa: ARG002
        """Whether what the token after ``num_tokens`` looks at still stands in ``table``.

        Behind it ``num_taken_back`` tokens are to be written anew.
        """
        needed_from = self.first_seen_token(num_tokens) // self.block_size
        return not self.drops_blocks or NULL_BLOCK not in table.block_ids[needed_from:]

    # What forks share

    def num_shared_blocks(self, table: BlockTable, num_tokens: int) -> int:  # noqa: ARG002
        """Leading entries of ``table`` that forks after ``num_tokens`` share: those of these tokens."""
        return div_ceil(num_tokens, self.block_size)

    def open_position(self, num_tokens: int) -> int | None:
        """Where the block stands that holds the last of ``num_tokens`` and will hold the next, if any."""
        position, num_inside = divmod(num_tokens, self.block_size)
        return position if num_inside else None

    # What is cached

    @abstractmethod
    def longest_hit(self, search: HitSearch, max_tokens: int, *, drops_last: bool) -> GroupHit:
        """The longest cached prefix of at most ``max_tokens`` tokens.

        With ``drops_last``, as draft groups need it, less its last block: that one has to be cached, and is
        computed anew.
        """

    def table_of_hit(self, cached: list[BlockId], num_tokens: int) -> BlockTable:
        """A table that begins with a hit: a null for each skipped block; nothing is left to publish of it.

        ``cached`` may become the table's.
        """
        num_skipped = min(self.num_skipped_blocks(num_tokens), len(cached)) if self.drops_blocks else 0
        block_ids = [NULL_BLOCK] * num_skipped + cached[num_skipped:] if num_skipped else cached
        return BlockTable(block_ids, min(num_tokens // self.block_size, len(block_ids)))

    def num_blocks_of_a_hit(self, *, drops_last: bool) -> int | None:  # noqa: ARG002 - most need them all
        """Consecutive blocks that make a hit, whatever its length; None where all of a prefix's blocks do.

        With ``drops_last``, the one that is computed anew is among them.
        """
        return None


def require_only(config: GroupConfig, *needed: str, optional: Collection[str] = ()) -> None:
    """Refuse ``config`` unless exactly the ``needed`` ones of the sizes that belong to some kind are given.

    Raises:
        InvalidRequest: A size is missing, below 1, or of another kind.
    """
    for name in ("sliding_window", "attention_chunk_size", "rswa_window", "num_blocks_per_request"):
        value = getattr(config, name)
        if name not in needed and value is not None:
            raise InvalidRequest.of(f"groups.{name}", f"a {config.kind} group has none: leave it out")
        if name in needed and (value is None or value < 1):
            raise InvalidRequest.of(f"groups.{name}", f"a {config.kind} group needs it, at least 1")
    for name in ("extra_retained_tokens", "num_speculative_blocks", "mamba_cache_mode"):
        if name not in optional and getattr(config, name):
            raise InvalidRequest.of(f"groups.{name}", f"a {config.kind} group has none: leave it out")
