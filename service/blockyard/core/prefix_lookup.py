"""The longest cached prefix that all groups of a pool can serve."""

from collections.abc import Sequence
from typing import NamedTuple

from blockyard.core.arithmetic import div_ceil
from blockyard.core.block_store import BlockStore
from blockyard.core.hash_chain import coarser_view
from blockyard.core.ids import BlockHash, BlockId, GroupIndex, LeaseId
from blockyard.core.kinds import HitSearch, Kind
from blockyard.core.kinds.base import GroupHit


class Hit:
    """``num_tokens`` are cached, in ``block_ids`` per group (null where a block is not needed)."""

    __slots__ = ("block_ids", "num_tokens")

    def __init__(self, num_tokens: int, block_ids: list[list[BlockId]]) -> None:
        self.num_tokens = num_tokens
        self.block_ids = block_ids


class _GroupSet(NamedTuple):
    """Groups of one kind and store, looked up together."""

    kind: Kind
    store: BlockStore
    groups: list[GroupIndex]


class PrefixLookup:
    """Asks the kinds of a pool's groups, each set of equal ones together.

    Args:
        kinds: One a group.
        stores: One a group: where its blocks are found.
        alignment: Tokens; every hit's length is a multiple of it. Hits may end inside blocks larger than it.
        hash_block_size: Tokens a block hash stands for.
    """

    __slots__ = ("_alignment", "_hash_block_size", "_is_run", "_num_groups", "_sets")

    def __init__(
        self, kinds: Sequence[Kind], stores: Sequence[BlockStore], alignment: int, hash_block_size: int
    ) -> None:
        sets: dict[tuple[Kind, int], _GroupSet] = {}
        for group, (kind, store) in enumerate(zip(kinds, stores, strict=True)):
            if kind.is_cacheable:
                sets.setdefault((kind, id(store)), _GroupSet(kind, store, [])).groups.append(group)
        # Kinds whose hits can be cut come first: they are looked up once, whatever the others then ask for.
        self._sets = sorted(sets.values(), key=lambda each: not each.kind.cuts_to_any_length)
        self._num_groups = len(kinds)
        self._alignment = alignment
        self._hash_block_size = hash_block_size
        self._is_run = len(kinds) == 1 and all(
            each.kind.cuts_to_any_length
            and not each.kind.is_draft
            and each.kind.block_size == alignment == hash_block_size
            for each in self._sets
        )

    def no_hit(self) -> Hit:
        """Nothing is cached."""
        return Hit(0, [[] for _ in range(self._num_groups)])

    def longest_hit(
        self, block_hashes: Sequence[BlockHash], max_tokens: int, lease_id: LeaseId | None = None
    ) -> Hit:
        """The longest hit of at most ``max_tokens`` tokens within ``block_hashes``.

        With ``lease_id``, less what only other leases may go on from.

        Each set of equal groups shortens the candidate in turn, until a round leaves it as it is. A draft
        group needs one block more than it serves, so it looks beyond the candidate: once for each candidate
        that another group has set.
        """
        num_hashed = len(block_hashes) * self._hash_block_size
        candidate = min(max_tokens, num_hashed)
        if candidate <= 0 or not self._sets:
            return self.no_hit()
        if self._is_run:  # one group, and all of its blocks from the left on: nothing to agree on
            num_blocks = candidate // self._hash_block_size
            run = self._sets[0].store.index.run(0, list(block_hashes[:num_blocks]))
            return Hit(len(run) * self._hash_block_size, [run])
        searches = [
            HitSearch(
                each.store.index,
                each.groups,
                coarser_view(block_hashes, each.kind.block_size // self._hash_block_size),
                block_hashes,
                self._hash_block_size,
                self._alignment,
                each.store.withheld_from(lease_id),
            )
            for each in self._sets
        ]
        found: list[GroupHit | None] = [None] * len(self._sets)
        dropped: set[int] = set()
        while True:
            num_tokens = candidate
            for number, each in enumerate(self._sets):
                kind, known = each.kind, found[number]
                if known is not None and kind.cuts_to_any_length:
                    num_tokens = min(num_tokens, known.num_tokens)
                    continue
                drops_last = kind.is_draft and number not in dropped
                beyond = kind.block_size if drops_last and self._num_groups > 1 else 0
                hit = kind.longest_hit(
                    searches[number], min(num_tokens + beyond, num_hashed), drops_last=drops_last
                )
                if drops_last:
                    dropped.add(number)
                elif hit.num_tokens < num_tokens:
                    dropped.clear()
                found[number] = hit
                num_tokens = min(num_tokens, hit.num_tokens)
            if num_tokens == candidate or len(self._sets) == 1:
                break
            candidate = num_tokens
        return Hit(num_tokens, self._cut(found, num_tokens))

    def _cut(self, found: list[GroupHit | None], num_tokens: int) -> list[list[BlockId]]:
        block_ids: list[list[BlockId]] = [[] for _ in range(self._num_groups)]
        for each, hit in zip(self._sets, found, strict=True):
            assert hit is not None
            for group, blocks in zip(each.groups, hit.blocks, strict=True):
                block_ids[group] = blocks[: div_ceil(num_tokens, each.kind.block_size)]
        return block_ids
