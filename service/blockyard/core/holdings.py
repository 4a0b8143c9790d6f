"""How many blocks each lease holds, counted in slices: a pool of millions takes tens of milliseconds.

Whoever counts goes on after each ``yield`` when it suits. The pool may change in between: leases that ended
meanwhile are counted as they were, new ones are not there yet.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence

from blockyard.core.audit import Holder, named_blocks
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.lease import Lease
from blockyard.core.pool import Pool

SLICE_BLOCKS = 4_096
"""Blocks looked at between two ``yield``: about a millisecond."""

PIECE_BLOCKS = 8
"""What a block table costs by itself, in blocks."""

MAX_SET_BLOCKS = 4_096
"""Of one lease. A set that grows is copied whole, and in one go: large ones would take too long."""


def count_holdings(pool: Pool) -> Generator[None, None, list[Holder]]:
    """What each lease of ``pool`` holds, in the order of their granting. Changes nothing.

    Returns:
        At the end of the generator: one entry a lease.
    """
    found = []
    work = 0
    for lease in list(pool.leases.values()):
        distinct = _Distinct(pool.config.num_blocks)
        for piece in held_pieces(pool, lease):
            distinct.add(piece)
            work += len(piece) + PIECE_BLOCKS
            if work >= SLICE_BLOCKS:
                work = 0
                yield
        work += PIECE_BLOCKS
        found.append(
            Holder(
                lease_id=lease.lease_id,
                tenant=lease.tenant.name,
                holder=lease.holder,
                num_sequences=len(lease.sequences),
                num_blocks=distinct.count(),
            )
        )
    return found


def held_pieces(pool: Pool, lease: Lease) -> Iterator[Sequence[BlockId]]:
    """The device's blocks that ``lease`` holds, in pieces of `SLICE_BLOCKS` at most; nulls are among them."""
    for blocks in named_blocks(pool, lease, pool.store):
        if len(blocks) <= SLICE_BLOCKS:
            yield blocks
        else:
            for begin in range(0, len(blocks), SLICE_BLOCKS):
                yield blocks[begin : begin + SLICE_BLOCKS]


class _Distinct:
    """Counts the distinct ones of blocks below ``num_blocks``."""

    __slots__ = ("_few", "_marks", "_num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._few: set[BlockId] = set()
        self._marks: bytearray | None = None  # a byte a block, once there are many

    def add(self, blocks: Iterable[BlockId]) -> None:
        if self._marks is None:
            self._few.update(blocks)
            if len(self._few) > MAX_SET_BLOCKS:
                self._marks = bytearray(self._num_blocks)
                self._mark(self._few)
        else:
            self._mark(blocks)

    def count(self) -> int:
        """Nulls are none."""
        if self._marks is None:
            return len(self._few) - (NULL_BLOCK in self._few)
        return self._marks.count(1) - self._marks[NULL_BLOCK]

    def _mark(self, blocks: Iterable[BlockId]) -> None:
        marks = self._marks
        assert marks is not None
        for block in blocks:
            marks[block] = 1
