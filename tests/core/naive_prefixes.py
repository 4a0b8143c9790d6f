"""Cached prefixes without shortcuts: the longest one that every group serves.

Each set of groups with equal specs answers for a bound; the sets shorten the candidate in turn. Except for
full attention, which is looked up once, an answer is not searched for as the real pool does: every length is
tried, from the longest down, until all blocks stand that a hit of it needs.
"""

from collections.abc import Sequence
from dataclasses import replace

from blockyard.core.arithmetic import align_down
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from core.naive_blocks import NaiveBlocks
from core.naive_kinds import (
    FULL_KINDS,
    SLIDING_KINDS,
    div_ceil,
    is_found,
    is_full,
    is_sliding,
    is_states,
    num_skipped_blocks,
)

NaiveHit = tuple[int, dict[int, list[BlockId]]]
"""Tokens, and per group a block at each position, or null."""


def ends_inside_blocks(config: PoolConfig) -> bool:
    """Whether hits may: some state's block is larger than the hash block, and all are full or states.

    Not where some are the host's: the blocks of a reported copy are the device's.
    """
    return (
        all(is_full(group) or is_states(group) for group in config.groups)
        and any(is_states(group) and group.block_size > config.hash_block_size for group in config.groups)
        and not any(group.is_host_resident for group in config.groups)
    )


def num_blocks_of_hit(group: GroupConfig) -> int:
    """Consecutive blocks that a hit of a sliding window needs; at least its last one, and one for drafts."""
    return max(div_ceil((group.sliding_window or 0) - 1, group.block_size) + group.is_draft, 1)


class NaivePrefixes:
    """What is cached in ``stores``: the device's blocks and the host's."""

    def __init__(self, config: PoolConfig, stores: list[NaiveBlocks]) -> None:
        self.config = config
        self.stores = stores
        self.withheld: set[BlockId] = set()
        self.alignment = config.scheduler_block_size
        if ends_inside_blocks(config):
            self.alignment = config.hash_block_size

    def store_of(self, group: int) -> NaiveBlocks:
        return self.stores[self.config.groups[group].is_host_resident]

    def find(
        self, num_tokens: int, hashes: Sequence[BlockHash], withheld: set[BlockId] | None = None
    ) -> tuple[int, list[list[BlockId]]]:
        """The longest cached prefix of at most ``num_tokens - 1`` tokens, and its blocks per group.

        States in ``withheld`` blocks are none.

        A draft set looks one of its blocks beyond the candidate before it drops one, where there are several
        groups; and again once the candidate was shortened by a lookup that did not drop one.
        """
        self.withheld = withheld or set()
        groups, sets = self.config.groups, self._sets()
        num_hashed = len(hashes) * self.config.hash_block_size
        bound = length = min(num_tokens - 1, num_hashed)
        if bound <= 0 or not sets or not self.config.enable_prefix_caching:
            return 0, [[] for _ in groups]
        drafts = {number for number, (first, *_) in enumerate(sets) if groups[first].is_draft}
        may_drop = set(drafts)
        hits: dict[int, NaiveHit] = {}
        candidate = None
        while candidate != length:
            candidate = length
            for number, (first, *_) in enumerate(sets):
                if number in hits and self._is_looked_up_once(groups[first]):
                    length = min(length, hits[number][0])
                    continue
                drops = number in may_drop
                beyond = groups[first].block_size if drops and len(groups) > 1 else 0
                hits[number] = self._longest(
                    sets[number], min(length + beyond, num_hashed), hashes, drops=drops
                )
                may_drop.discard(number)
                if hits[number][0] < length and not drops:
                    may_drop |= drafts
                length = min(length, hits[number][0])
            if len(sets) == 1:
                break
        if not drafts and not ends_inside_blocks(self.config):
            self._check_longest(length, bound, sets, hashes)
        tables = {group: table for hit in hits.values() for group, table in hit[1].items()}
        return length, [
            tables.get(number, [])[: div_ceil(length, group.block_size)]
            for number, group in enumerate(groups)
        ]

    def _check_longest(
        self, length: int, bound: int, sets: list[list[int]], hashes: Sequence[BlockHash]
    ) -> None:
        """In other words: it is the longest one that every set serves as it is."""
        for longer in range(align_down(bound, self.alignment), length, -self.alignment):
            assert any(self._longest(each, longer, hashes, drops=False)[0] < longer for each in sets)

    def _sets(self) -> list[list[int]]:
        """Groups with equal specs are looked up together; full attention first."""
        sets: dict[GroupConfig, list[int]] = {}
        for number, group in enumerate(self.config.groups):
            for alike in (FULL_KINDS, SLIDING_KINDS):
                if group.kind in alike:
                    group = replace(group, kind=alike[0])  # noqa: PLW2901 - another name for the same
            if is_found(group):
                sets.setdefault(group, []).append(number)
        return sorted(
            sets.values(), key=lambda each: not self._is_looked_up_once(self.config.groups[each[0]])
        )

    @staticmethod
    def _is_looked_up_once(group: GroupConfig) -> bool:
        return is_full(group) or group.kind == "rswa"

    def _longest(
        self, groups: list[int], bound: int, hashes: Sequence[BlockHash], *, drops: bool
    ) -> NaiveHit:
        """What a set of equal groups serves of at most ``bound`` tokens."""
        if self._is_looked_up_once(self.config.groups[groups[0]]):
            return self._longest_full(groups, bound, hashes, drops=drops)
        for length in range(align_down(bound, self.alignment), 0, -self.alignment):
            tables = self._serve(groups, length, bound, hashes, drops=drops)
            if tables is not None:
                return length, tables
        return 0, {}

    def _longest_full(
        self, groups: list[int], bound: int, hashes: Sequence[BlockHash], *, drops: bool
    ) -> NaiveHit:
        """Whole blocks from the left; then inside the next one from its highest boundary down."""
        size = self.config.groups[groups[0]].block_size
        ends: list[int] = []
        while (len(ends) + 1) * size <= bound and self._all_cache(groups, (len(ends) + 1) * size, hashes):
            ends.append((len(ends) + 1) * size)
        length = len(ends) * size
        if self.alignment < size:
            highest = align_down(min(bound, length + size - 1), self.alignment)
            for boundary in range(highest, length, -self.alignment):
                if self._all_cache(groups, boundary, hashes):
                    ends.append(boundary)
                    length = boundary
                    break
        if drops:
            length = max(length - self.alignment, 0)
        tables = {group: [self._cached(group, end, hashes) for end in ends] for group in groups}
        return align_down(length, self.alignment), tables

    def _serve(
        self, groups: list[int], length: int, bound: int, hashes: Sequence[BlockHash], *, drops: bool
    ) -> dict[int, list[BlockId]] | None:
        """Blocks of a hit of just that length; None if one is missing."""
        group = self.config.groups[groups[0]]
        size = group.block_size
        if is_states(group):
            ends, num_null = [length], div_ceil(length, size) - 1
        else:
            num_blocks = length // size
            num_null = num_skipped_blocks(group, length)
            if is_sliding(group):
                num_null = max(0, num_blocks - num_blocks_of_hit(replace(group, is_draft=False)))
                if drops:  # one more consecutive block, which is not served
                    num_blocks += 1
                    num_null = max(0, num_blocks - num_blocks_of_hit(group))
            ends = [(position + 1) * size for position in range(num_null, num_blocks)]
        if any(end > bound or not self._all_cache(groups, end, hashes) for end in ends):
            return None
        return {
            group: [NULL_BLOCK] * num_null + [self._cached(group, end, hashes) for end in ends]
            for group in groups
        }

    def _all_cache(self, groups: list[int], end: int, hashes: Sequence[BlockHash]) -> bool:
        """Whether each group has the block that ends there; a state of this very call is none yet."""
        for group in groups:
            block = self._cached(group, end, hashes)
            is_state = is_states(self.config.groups[group])
            if block == NULL_BLOCK or (is_state and block in {*self.store_of(group).fresh, *self.withheld}):
                return False
        return True

    def _cached(self, group: int, end: int, hashes: Sequence[BlockHash]) -> BlockId:
        """The block that caches the prefix of ``end`` tokens; null if none does."""
        block_hash = hashes[end // self.config.hash_block_size - 1]
        return self.store_of(group).find(block_hash, group) or NULL_BLOCK
