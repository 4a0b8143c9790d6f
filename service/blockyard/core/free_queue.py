"""The free queue: blocks that nobody holds, in the order in which they will be used again.

A doubly linked ring in two integer arrays, with the null block as its sentinel: ``_next[0]`` is the block
to be used first, ``_prev[0]`` the last. Eight bytes a block, none of them seen by the garbage collector.

    0 -> oldest -> ... -> newest -> 0

Invariant: following ``_next`` from 0 visits each free block once and returns to 0; ``_prev`` is its inverse.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from blockyard.core.ids import NULL_BLOCK, BlockId


class FreeQueue:
    """Blocks 1 to ``num_blocks - 1`` in ascending order, to begin with.

    Args:
        num_blocks: Blocks of the pool, the null block included; at least 1.
    """

    __slots__ = ("_next", "_num_free", "_prev")

    def __init__(self, num_blocks: int) -> None:
        self._num_free = num_blocks - 1
        self._next = array("i", range(1, num_blocks + 1))
        self._next[-1] = NULL_BLOCK
        self._prev = array("i", range(-1, num_blocks - 1))
        self._prev[NULL_BLOCK] = num_blocks - 1

    def __len__(self) -> int:
        return self._num_free

    def __iter__(self) -> Iterator[BlockId]:
        block = self._next[NULL_BLOCK]
        while block != NULL_BLOCK:
            yield block
            block = self._next[block]

    def pop(self, num_blocks: int) -> list[BlockId]:
        """Take the ``num_blocks`` blocks to be used first. The caller makes sure that there are as many."""
        assert num_blocks <= self._num_free
        following = self._next
        block = NULL_BLOCK
        popped = [block := following[block] for _ in range(num_blocks)]
        first = following[block]
        following[NULL_BLOCK] = first
        self._prev[first] = NULL_BLOCK
        self._num_free -= num_blocks
        return popped

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take ``blocks``, all of which are in the queue, out from wherever they stand."""
        following, preceding = self._next, self._prev
        for block in blocks:
            before, after = preceding[block], following[block]
            following[before] = after
            preceding[after] = before
        self._num_free -= len(blocks)

    def append(self, blocks: Sequence[BlockId]) -> None:
        """Put ``blocks``, none of which is in the queue, behind all others, in their order."""
        self._link(self._prev[NULL_BLOCK], blocks, NULL_BLOCK)

    def prepend(self, blocks: Sequence[BlockId]) -> None:
        """Put ``blocks``, none of which is in the queue, before all others, in their order."""
        self._link(NULL_BLOCK, blocks, self._next[NULL_BLOCK])

    def _link(self, before: BlockId, blocks: Sequence[BlockId], after: BlockId) -> None:
        following, preceding = self._next, self._prev
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
        block = NULL_BLOCK
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
        return {"num_free": self._num_free, "next": self._next.tobytes(), "prev": self._prev.tobytes()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "FreeQueue":
        """The queue that ``state`` was taken from."""
        queue = cls(1)
        queue._next = array("i", state["next"])
        queue._prev = array("i", state["prev"])
        queue._num_free = state["num_free"]
        return queue
