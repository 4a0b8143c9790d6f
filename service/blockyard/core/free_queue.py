"""The free queue: blocks that nobody holds, in the order in which they will be used again.

A doubly linked ring in two vectors of integers, with the null block as its sentinel: ``_next[0]`` is the
block to be used first, ``_prev[0]`` the last. The garbage collector sees none of it.

    0 -> oldest -> ... -> newest -> 0

Invariant: following ``_next`` from 0 visits each free block once and returns to 0; ``_prev`` is its inverse.
"""

from collections.abc import Iterator
from typing import Any

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.packing import pack_vector, unpack_vector


class FreeQueue:
    """Blocks 1 to ``num_blocks - 1`` in ascending order, to begin with.

    Args:
        num_blocks: Blocks of the pool, the null block included; at least 1.
    """

    __slots__ = ("_next", "_num_free", "_prev")

    def __init__(self, num_blocks: int) -> None:
        self._num_free = num_blocks - 1
        self._next = vec[i64](range(1, num_blocks + 1))
        self._next[num_blocks - 1] = NULL_BLOCK
        self._prev = vec[i64](range(-1, num_blocks - 1))
        self._prev[NULL_BLOCK] = num_blocks - 1

    def __len__(self) -> int:
        return self._num_free

    def __iter__(self) -> Iterator[BlockId]:
        block = int(self._next[NULL_BLOCK])
        while block != NULL_BLOCK:
            yield block
            block = int(self._next[block])

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

    def append(self, blocks: list[BlockId]) -> None:
        """Put ``blocks``, none of which is in the queue, behind all others, in their order."""
        self._link(self._prev[NULL_BLOCK], blocks, NULL_BLOCK)

    def prepend(self, blocks: list[BlockId]) -> None:
        """Put ``blocks``, none of which is in the queue, before all others, in their order."""
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

    def problems(self) -> list[str]:
        """What contradicts the invariant; empty when all is well. O(free blocks)."""
        found: list[str] = []
        seen = 0
        block: i64 = NULL_BLOCK
        while True:
            after = self._next[block]
            if self._prev[after] != block:
                found.append(f"free queue: block {after} follows {block}, which is not the one before it")
                break
            if after == NULL_BLOCK:
                break
            seen += 1
            if seen > len(self._next):
                found.append("free queue: it never returns to its head")
                break
            block = after
        if seen != self._num_free:
            found.append(f"free queue: {seen} blocks are linked, {self._num_free} counted")
        return found

    def to_state(self) -> dict[str, Any]:
        """The queue as plain data."""
        return {"num_free": self._num_free, "next": pack_vector(self._next), "prev": pack_vector(self._prev)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "FreeQueue":
        """The queue that ``state`` was taken from."""
        queue = cls(1)
        queue._next = unpack_vector(state["next"])
        queue._prev = unpack_vector(state["prev"])
        queue._num_free = state["num_free"]
        return queue
