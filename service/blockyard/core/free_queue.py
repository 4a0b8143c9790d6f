"""The free queue: blocks that nobody holds, in the order in which they will be used again.

A doubly linked ring in two vectors of integers, with the null block as its sentinel: ``_next[0]`` is the
block to be used first, ``_prev[0]`` the last. The garbage collector sees none of it.

    0 -> oldest -> ... -> newest -> 0

Invariant: following ``_next`` from 0 visits each free block once and returns to 0; ``_prev`` is its inverse.

The queue is also what a policy of eviction is asked: it is told of hits (`FreeQueue.note_hit`), of what is
published (`FreeQueue.note_published`) and freed (`FreeQueue.append`), and picks the blocks to be used again
(`FreeQueue.pop`). This one is least recently used, for which the order in which blocks are freed is all that
counts; `blockyard.core.adaptive_queue` has another, with further rings in the same vectors.
"""

from collections.abc import Iterator
from typing import Any

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from blockyard.core.packing import pack_vector, unpack_vector


class FreeQueue:
    """Blocks 1 to ``num_blocks - 1`` in ascending order, to begin with.

    Args:
        num_blocks: Blocks of the pool, the null block included; at least 1.
        num_further_rings: Rings beside the first, empty ones, whose sentinels come after the blocks.
    """

    __slots__ = ("_next", "_num_free", "_prev")

    def __init__(self, num_blocks: int, num_further_rings: int = 0) -> None:
        self._num_free = num_blocks - 1
        self._next = vec[i64](range(1, num_blocks + 1 + num_further_rings))
        self._next[num_blocks - 1] = NULL_BLOCK
        self._prev = vec[i64](range(-1, num_blocks - 1 + num_further_rings))
        self._prev[NULL_BLOCK] = num_blocks - 1
        for sentinel in range(num_blocks, num_blocks + num_further_rings):
            self._next[sentinel] = self._prev[sentinel] = sentinel

    @property
    def weight(self) -> float | None:
        """What use counts for against recency; None where recency is all that counts."""
        return None

    def __len__(self) -> int:
        return self._num_free

    def __iter__(self) -> Iterator[BlockId]:
        return self._ring(NULL_BLOCK)

    def pop(self, num_blocks: int) -> list[BlockId]:
        """Take the ``num_blocks`` blocks to be used first. The caller makes sure that there are as many."""
        assert num_blocks <= self._num_free
        following = self._next
        popped: list[BlockId] = []
        block: i64 = NULL_BLOCK
        for _ in range(num_blocks):
            block = following[block]
            popped.append(block)
        first = following[block]
        following[NULL_BLOCK] = first
        self._prev[first] = NULL_BLOCK
        self._num_free -= num_blocks
        return popped

    def remove(self, blocks: list[BlockId]) -> None:
        """Take ``blocks``, all of which are in the queue, out from wherever they stand."""
        following, preceding = self._next, self._prev
        block: i64
        for block in blocks:
            before, after = preceding[block], following[block]
            following[before] = after
            preceding[after] = before
        self._num_free -= len(blocks)

    def note_hit(self, blocks: list[BlockId]) -> None:
        """``blocks``, a prefix from its beginning on, were found by a new sequence; nulls are no blocks."""

    def note_published(
        self, blocks: list[BlockId], block_hashes: list[BlockHash], parent: BlockId = NULL_BLOCK
    ) -> None:
        """``blocks`` become hits, each for its hash, behind ``parent``; null where none comes before them."""

    def note_released(self, blocks: list[BlockId]) -> None:
        """``blocks``, each behind those after it, are held once less from now on; nulls are no blocks."""

    def note_all_forgotten(self, further: list[BlockId]) -> None:
        """No block has content any more. ``further`` ones, free from now on, come behind all others."""
        self._link(self._prev[NULL_BLOCK], further, NULL_BLOCK)

    def append(self, blocks: list[BlockId]) -> None:
        """Put ``blocks``, which have content, and none of which is in the queue, behind all others."""
        self._link(self._prev[NULL_BLOCK], blocks, NULL_BLOCK)

    def prepend(self, blocks: list[BlockId]) -> None:
        """Put ``blocks``, which have none, and none of which is in the queue, before all others."""
        self._link(NULL_BLOCK, blocks, self._next[NULL_BLOCK])

    def _link(self, before: "i64", blocks: list[BlockId], after: "i64") -> None:
        following, preceding = self._next, self._prev
        block: i64
        for block in blocks:
            following[before] = block
            preceding[block] = before
            before = block
        following[before] = after
        preceding[after] = before
        self._num_free += len(blocks)

    def _ring(self, sentinel: int) -> Iterator[BlockId]:
        block = int(self._next[sentinel])
        while block != sentinel:
            yield block
            block = int(self._next[block])

    def problems(self) -> list[str]:
        """What contradicts the invariant; empty when all is well. O(free blocks)."""
        found, num_linked = self._ring_problems(NULL_BLOCK)
        if num_linked != self._num_free:
            found.append(f"free queue: {num_linked} blocks are linked, {self._num_free} counted")
        return found

    def _ring_problems(self, sentinel: int) -> tuple[list[str], int]:
        """What is wrong with a ring, and how many blocks are in it."""
        num_linked = 0
        block: i64 = sentinel
        while True:
            after = self._next[block]
            if self._prev[after] != block:
                return [
                    f"free queue: block {after} follows {block}, which is not the one before it"
                ], num_linked
            if after == sentinel:
                return [], num_linked
            num_linked += 1
            if num_linked > len(self._next):
                return ["free queue: it never returns to its head"], num_linked
            block = after

    def to_state(self) -> dict[str, Any]:
        """The queue as plain data."""
        return {"num_free": self._num_free, "next": pack_vector(self._next), "prev": pack_vector(self._prev)}

    def load(self, state: dict[str, Any]) -> None:
        """Become the queue that ``state`` was taken from."""
        self._next = unpack_vector(state["next"])
        self._prev = unpack_vector(state["prev"])
        self._num_free = state["num_free"]
