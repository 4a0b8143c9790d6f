"""Blocks without shortcuts: nothing is kept that can be counted anew."""

from collections.abc import Sequence
from typing import NamedTuple

from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId


class NaiveKey(NamedTuple):
    """``block`` caches the prefix of ``num_tokens`` tokens, which ends in it."""

    block_hash: BlockHash
    group: int
    block: BlockId
    num_tokens: int


class NaiveBlocks:
    """``num_blocks`` blocks, all but the null block free.

    Attributes:
        reference_counts: Per block, how many tables, raw holders and ends of copies name it.
        free: Blocks that nobody holds, the one to be used next first.
        keys: What is cached, in the order of registration. A block "has a hash" when a key names it.
        fresh: Blocks of states that were published by the call that is being done.
        to_copy: States that are kept for others, whose copy is not made yet; and whose lease makes it.
        num_evictions, num_pinned_evictions: Blocks that lost their hash, a pinned one, to be used again.
        pinned: Hashes that soft pins go by, each as often as it is pinned.
    """

    def __init__(self, num_blocks: int) -> None:
        self.reference_counts = [0] * num_blocks
        self.free = list(range(1, num_blocks))
        self.keys: list[NaiveKey] = []
        self.fresh: list[BlockId] = []
        self.to_copy: dict[BlockId, LeaseId] = {}
        self.num_evictions = self.num_pinned_evictions = 0
        self.pinned: list[BlockHash] = []

    def refuse_above_free(self, num_needed: int) -> None:
        """Raise if more blocks are needed than are free."""
        if num_needed > len(self.free):
            raise InsufficientBlocks.of(num_needed, len(self.free), len(self.reference_counts) - 1)

    def take(self, num_blocks: int) -> list[BlockId]:
        """New blocks are popped from the queue's front; one that carries a hash loses it."""
        taken = self.in_order()[:num_blocks]
        self.free = [block for block in self.free if block not in taken]
        for block in taken:
            self.num_evictions += self.is_cached(block)
            self.num_pinned_evictions += self.is_pinned(block)
            self.forget(block)
            self.reference_counts[block] = 1
        return taken

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """A hit touches its blocks: count +1, and out of the queue if the count was zero."""
        for block in blocks:
            if block != NULL_BLOCK:
                self.reference_counts[block] += 1
                self.free = [other for other in self.free if other != block]

    def release(self, blocks: Sequence[BlockId]) -> int:
        """Counts fall by one; blocks that reach zero go to the front without a hash, to the end with one."""
        held = [block for block in blocks if block != NULL_BLOCK]
        for block in held:
            self.reference_counts[block] -= 1
        idle = [block for block in held if self.reference_counts[block] == 0]
        without_hash = [block for block in idle if not self.is_cached(block)]
        with_hash = [block for block in idle if self.is_cached(block)]
        self.free = without_hash + self.free + with_hash
        return len(idle)

    # What is pinned

    def in_order(self) -> list[BlockId]:
        """The free blocks as they will be used: those with a pinned hash once there are no others."""
        return sorted(self.free, key=self.is_pinned)

    def is_pinned(self, block: BlockId) -> bool:
        return bool(self.pinned) and any(key.block_hash in self.pinned for key in self.keys_of(block))

    def pin(self, hashes: Sequence[BlockHash], num_groups: int) -> None:
        """Blocks that are pinned from now on are as if freed now, tail first."""
        kept = [block for block in self.free if self.is_pinned(block)]
        self.pinned += hashes
        self._free_again([block for block in self._with(hashes, num_groups) if block not in kept])

    def unpin(self, hashes: Sequence[BlockHash], num_groups: int) -> None:
        """Likewise those that are pinned no more."""
        for block_hash in hashes:
            self.pinned.remove(block_hash)
        blocks = self._with(hashes, num_groups)
        self._free_again([block for block in blocks if not self.is_pinned(block)])

    def _with(self, hashes: Sequence[BlockHash], num_groups: int) -> list[BlockId]:
        """Group by group, the free blocks that carry ``hashes``, the last one's first."""
        found = [
            key.block
            for group in range(num_groups)
            for block_hash in reversed(hashes)
            for key in self.keys
            if (key.group, key.block_hash) == (group, block_hash) and key.block in self.free
        ]
        return list(dict.fromkeys(found))

    def _free_again(self, blocks: Sequence[BlockId]) -> None:
        self.free = [block for block in self.free if block not in blocks] + list(blocks)

    # What is cached

    def forget_all(self) -> None:
        """No block has a hash any more: those that were pinned have been the last to be used."""
        self.free = self.in_order()
        self.keys = []

    def is_cached(self, block: BlockId) -> bool:
        return self.keys_of(block) != []

    def keys_of(self, block: BlockId) -> list[NaiveKey]:
        """The first one first."""
        return [key for key in self.keys if key.block == block]

    def find(self, block_hash: BlockHash, group: int) -> BlockId | None:
        """The first one registered that still stands."""
        for key in self.keys:
            if (key.block_hash, key.group) == (block_hash, group):
                return key.block
        return None

    def register(self, key: NaiveKey) -> None:
        self.keys.append(key)

    def note_hit(self, blocks: Sequence[BlockId]) -> None:
        """A new sequence found these; nulls are none. That makes no difference to who is evicted first."""

    def note_published(
        self, blocks: Sequence[BlockId], hashes: Sequence[BlockHash], parent: BlockId = NULL_BLOCK
    ) -> None:
        """These became hits together, behind ``parent``; nor does this."""

    def forget(self, block: BlockId) -> None:
        """A block loses all its keys together."""
        self.keys = [key for key in self.keys if key.block != block]

    def move_keys(self, source: BlockId, destination: BlockId) -> None:
        """The keys move to a block that has none: they are its registrations from now on."""
        moved = self.keys_of(source)
        self.forget(source)
        for key in moved:
            self.register(key._replace(block=destination))
        self.note_published([destination], [moved[0].block_hash])
