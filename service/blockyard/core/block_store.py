"""Every block's reference count and hash, and the two structures that follow from them.

Metadata lies in parallel arrays indexed by block id. Invariants: a block is in the free queue exactly when
its count is zero and it is not the null block; a block's hash stands in the prefix index exactly as long as
the block carries it.
"""

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from blockyard.core.errors import InvalidRequest
from blockyard.core.free_queue import FreeQueue
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, GroupIndex
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.statistics import Counters


class BlockStore:
    """``num_blocks`` blocks without content, all but the null block free; evictions go into ``counters``.

    Attributes:
        reference_counts: Per block, how many tables and raw holders name it.
        hashes: Per block, the hash of its content once published.
        groups: Per block, the group it was published for; meaningless without a hash.
        queue: The free blocks.
        index: The blocks that carry a hash.
        num_cached_blocks: How many these are.
    """

    __slots__ = (
        "_counters",
        "groups",
        "hashes",
        "index",
        "num_cached_blocks",
        "queue",
        "reference_counts",
    )

    def __init__(self, num_blocks: int, num_groups: int, counters: Counters) -> None:
        self._counters = counters
        self.reference_counts = array("i", bytes(4 * num_blocks))
        self.groups = array("H", bytes(2 * num_blocks))
        self.hashes: list[BlockHash | None] = [None] * num_blocks
        self.queue = FreeQueue(num_blocks)
        self.index = PrefixIndex(num_groups)
        self.num_cached_blocks = 0

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return len(self.queue)

    @property
    def num_held_blocks(self) -> int:
        """Blocks that somebody holds; the null block is neither free nor held."""
        return len(self.hashes) - 1 - len(self.queue)

    def take(self, num_blocks: int) -> list[BlockId]:
        """Hand out the blocks at the head of the free queue; what they cached is forgotten.

        The caller makes sure that as many are free.
        """
        blocks = self.queue.pop(num_blocks)
        counts, hashes = self.reference_counts, self.hashes
        for block in blocks:
            counts[block] = 1
            if hashes[block] is not None:
                self._forget(block)
                self._counters.num_evicted_blocks += 1
        return blocks

    def touch(self, blocks: Iterable[BlockId]) -> None:
        """Hold ``blocks`` once more; those in the free queue leave it. Nulls are passed over."""
        counts = self.reference_counts
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if counts[block] == 0:
                self.queue.remove(block)
            counts[block] += 1

    def release(self, blocks: Iterable[BlockId]) -> int:
        """Hold ``blocks`` once less, the one to be used again first at their head. Nulls are passed over.

        Blocks that nobody holds any more go into the free queue: those without a hash to its front, as
        nothing is lost by using them again, the others to its end; each in the order given.

        Returns:
            How many blocks became free.
        """
        counts, hashes = self.reference_counts, self.hashes
        empty: list[BlockId] = []
        cached: list[BlockId] = []
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            count = counts[block] - 1
            assert count >= 0, f"block {block} is released more often than held"
            counts[block] = count
            if count == 0:
                (empty if hashes[block] is None else cached).append(block)
        self.queue.prepend(empty)
        self.queue.append(cached)
        return len(empty) + len(cached)

    def publish(self, block: BlockId, group: GroupIndex, block_hash: BlockHash) -> None:
        """Make a held ``block``, which carries no hash, a hit for ``block_hash``."""
        assert self.hashes[block] is None, f"block {block} carries a hash already"
        self.hashes[block] = block_hash
        self.groups[block] = group
        self.index.add(group, block_hash, block)
        self.num_cached_blocks += 1

    def forget_all(self) -> None:
        """Forget every hash. The free queue keeps its order."""
        self.index.clear()
        self.hashes = [None] * len(self.hashes)
        self.num_cached_blocks = 0

    def to_state(self) -> dict[str, Any]:
        """The store as plain data; its arrays in this machine's byte order."""
        return {
            "num_groups": self.index.num_groups,
            "byteorder": sys.byteorder,
            "reference_counts": self.reference_counts.tobytes(),
            "groups": self.groups.tobytes(),
            "hashes": list(self.hashes),
            "queue": self.queue.to_state(),
            "shared_hashes": self.index.shared(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], counters: Counters) -> "BlockStore":
        """The store that ``state`` was taken from.

        Raises:
            InvalidRequest: ``state`` comes from a machine of another byte order.
        """
        if state["byteorder"] != sys.byteorder:
            raise InvalidRequest.of(
                "byteorder", f"{state['byteorder']} is not this machine's, {sys.byteorder}"
            )
        store = cls(1, state["num_groups"], counters)
        store.reference_counts = array("i", state["reference_counts"])
        store.groups = array("H", state["groups"])
        store.hashes = list(state["hashes"])
        store.queue = FreeQueue.from_state(state["queue"])
        # Blocks that share a hash go first, in the order in which the index would return them.
        shared = [block for blocks in state["shared_hashes"] for block in blocks]
        cached = [block for block, block_hash in enumerate(store.hashes) if block_hash is not None]
        for block in dict.fromkeys(shared + cached):
            block_hash = store.hashes[block]
            assert block_hash is not None
            store.index.add(store.groups[block], block_hash, block)
        store.num_cached_blocks = len(cached)
        return store

    def _forget(self, block: BlockId) -> None:
        block_hash = self.hashes[block]
        assert block_hash is not None
        self.index.remove(self.groups[block], block_hash, block)
        self.hashes[block] = None
        self.num_cached_blocks -= 1
