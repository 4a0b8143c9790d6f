"""The longest cached prefix that all groups of a pool can serve."""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.hash_chain import coarser_view
from blockyard.core.ids import BlockHash, BlockId, GroupIndex
from blockyard.core.kinds import HitSearch, Kind
from blockyard.core.prefix_index import PrefixIndex


@dataclass(frozen=True, slots=True)
class Hit:
    """``num_tokens`` are cached, in ``block_ids`` per group (null where a block is not needed)."""

    num_tokens: int
    block_ids: list[list[BlockId]]


class PrefixLookup:
    """Asks the kinds of a pool's groups, each set of equal ones together.

    Args:
        kinds: One a group.
        alignment: Tokens; every hit's length is a multiple of it.
        hash_block_size: Tokens a block hash stands for.
    """

    __slots__ = ("_alignment", "_hash_block_size", "_num_groups", "_sets")

    def __init__(self, kinds: Sequence[Kind], alignment: int, hash_block_size: int) -> None:
        sets: dict[Kind, list[GroupIndex]] = {}
        for group, kind in enumerate(kinds):
            sets.setdefault(kind, []).append(group)
        # Kinds whose hits can be cut come first: they are looked up once, whatever the others then ask for.
        self._sets = sorted(sets.items(), key=lambda item: not item[0].cuts_to_any_length)
        self._num_groups = len(kinds)
        self._alignment = alignment
        self._hash_block_size = hash_block_size

    def no_hit(self) -> Hit:
        """Nothing is cached."""
        return Hit(0, [[] for _ in range(self._num_groups)])

    def longest_hit(self, index: PrefixIndex, block_hashes: Sequence[BlockHash], max_tokens: int) -> Hit:
        """The longest hit of at most ``max_tokens`` tokens within ``block_hashes``.

        Each set of equal groups shortens the candidate in turn, until a round leaves it as it is.
        """
        candidate = min(max_tokens, len(block_hashes) * self._hash_block_size)
        if candidate <= 0:
            return self.no_hit()
        searches = [
            HitSearch(
                index,
                groups,
                coarser_view(block_hashes, kind.block_size // self._hash_block_size),
                self._alignment,
            )
            for kind, groups in self._sets
        ]
        found: list[list[list[BlockId]]] = [[] for _ in self._sets]
        while True:
            num_tokens = candidate
            for number, (kind, _) in enumerate(self._sets):
                if found[number] and kind.cuts_to_any_length:
                    num_tokens = min(num_tokens, len(found[number][0]) * kind.block_size)
                else:
                    found[number] = kind.longest_hit(searches[number], num_tokens)
                    num_tokens = len(found[number][0]) * kind.block_size
            if num_tokens == candidate or len(self._sets) == 1:
                break
            candidate = num_tokens
        return Hit(num_tokens, self._cut(found, num_tokens))

    def _cut(self, found: list[list[list[BlockId]]], num_tokens: int) -> list[list[BlockId]]:
        block_ids: list[list[BlockId]] = [[] for _ in range(self._num_groups)]
        for (kind, groups), hits in zip(self._sets, found, strict=True):
            for group, hit in zip(groups, hits, strict=True):
                block_ids[group] = hit[: num_tokens // kind.block_size]
        return block_ids
