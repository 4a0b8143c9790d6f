"""What every block of a pool is at the moment, one byte a block: for people who look at a whole pool.

Made in slices, as `blockyard.core.holdings` counts: the pool may change between two of them, and a map of a
million blocks is then smeared over the milliseconds that it took. Each block is shown as it was at some
moment of these. Only the device's blocks are shown.
"""

import heapq
from array import array
from collections.abc import Generator
from dataclasses import dataclass
from enum import IntEnum
from itertools import compress, count, repeat
from operator import is_not
from typing import TYPE_CHECKING

from blockyard.core.block_store import BlockStore
from blockyard.core.holdings import PIECE_BLOCKS, SLICE_BLOCKS, held_pieces
from blockyard.core.ids import NULL_BLOCK, LeaseId
from blockyard.core.lease import Lease
from blockyard.core.pool import Pool

if TYPE_CHECKING:
    from librt.vecs import vec
    from mypy_extensions import i64


class State(IntEnum):
    """Codes of a map by state; each block is in exactly one."""

    NULL = 0
    """Never handed out."""
    FREE = 1
    """Held by nobody, without content."""
    FREE_CACHED = 2
    """Held by nobody, with content that can be found: a hit, until the block is used again."""
    HELD = 3
    """Held, without content that others can find."""
    HELD_CACHED = 4
    """Held, with content that others can find."""


SEVERAL = 3
"""Code of a block that several leases hold, in a map by lease. Codes below are those of `State`."""
OTHERS = 4
"""Code of all leases that have none of their own."""
FIRST_LEASE = 5
"""Code of the lease with the most blocks to itself; the next ones follow."""
MAX_LEASES = 200
"""Leases with a code of their own."""

_NOT_HELD = (State.NULL, State.FREE, State.FREE_CACHED)
_ANY = bytes([0]) + bytes([1]) * 255
_NONE = bytes([255]) + bytes(255)
_STATE_OF_BITS = bytes([State.FREE, State.FREE_CACHED, State.HELD, State.HELD_CACHED]) + bytes(252)
_WITHOUT_LEASE = bytes([State.NULL, State.FREE, State.FREE_CACHED, OTHERS, OTHERS]) + bytes(251)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """What ``code`` stands for, and how many blocks have it. ``lease_id``: where it is one lease's."""

    code: int
    label: str
    num_blocks: int
    lease_id: LeaseId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMap:
    """``codes[b]`` is block ``b``'s; all codes stand in ``legend``, whose counts add up to all blocks."""

    epoch: int
    legend: list[LegendEntry]
    codes: bytes


def map_by_state(pool: Pool) -> Generator[None, None, BlockMap]:
    """The `State` of each block. Changes nothing.

    Returns:
        At the end of the generator: the map.
    """
    codes = bytearray()
    counts = dict.fromkeys(State, 0)
    for begin in range(0, pool.config.num_blocks, SLICE_BLOCKS):
        some = _states(pool.store, begin, begin + SLICE_BLOCKS)
        for state in State:
            counts[state] += some.count(state)
        codes += some
        yield
    legend = [LegendEntry(code=state, label=_label(state), num_blocks=counts[state]) for state in State]
    return BlockMap(epoch=pool.epoch, legend=legend, codes=bytes(codes))


def map_by_lease(pool: Pool) -> Generator[None, None, BlockMap]:
    """Who holds each block: the leases with the most blocks to themselves by name. Changes nothing.

    Returns:
        At the end of the generator: the map. Blocks that nobody holds are null or free as in
        `map_by_state`.
    """
    leases = list(pool.leases.values())
    owners, num_own = yield from _owners(pool, leases)
    largest = heapq.nlargest(MAX_LEASES, compress(count(), num_own), num_own.__getitem__)
    code_of = bytearray([0]) + bytearray([OTHERS]) * len(leases) + bytearray([SEVERAL])
    for place, number in enumerate(largest):
        code_of[number] = FIRST_LEASE + place
    codes = bytearray()
    counts = dict.fromkeys(range(FIRST_LEASE), 0)
    for begin in range(0, len(owners), SLICE_BLOCKS):
        held = bytes(map(code_of.__getitem__, owners[begin : begin + SLICE_BLOCKS]))
        some = _first_of(held, _states(pool.store, begin, begin + SLICE_BLOCKS).translate(_WITHOUT_LEASE))
        for code in counts:
            counts[code] += some.count(code)
        codes += some
        yield
    own = [
        LegendEntry(
            code=FIRST_LEASE + place,
            label=leases[number - 1].holder,
            num_blocks=num_own[number],
            lease_id=leases[number - 1].lease_id,
        )
        for place, number in enumerate(largest)
    ]
    shared = [
        *(LegendEntry(code=state, label=_label(state), num_blocks=counts[state]) for state in _NOT_HELD),
        LegendEntry(code=SEVERAL, label="several leases", num_blocks=counts[SEVERAL]),
        LegendEntry(code=OTHERS, label="other leases", num_blocks=counts[OTHERS]),
    ]
    return BlockMap(epoch=pool.epoch, legend=[*shared, *own], codes=bytes(codes))


def _label(state: State) -> str:
    """``FREE_CACHED`` as "free and cached"."""
    return state.name.lower().replace("_", " and ")


def _states(store: BlockStore, begin: int, end: int) -> bytes:
    """The `State` of each block from ``begin`` to ``end``."""
    held = _is_positive(store.reference_counts[begin:end])
    cached = bytes(map(is_not, store.hashes[begin:end], repeat(None)))
    bits = int.from_bytes(held) << 1 | int.from_bytes(cached)  # no byte is above 1: none runs into the next
    states = bits.to_bytes(len(held)).translate(_STATE_OF_BITS)
    return states if begin > NULL_BLOCK else bytes([State.NULL]) + states[1:]


def _is_positive(counts: "vec[i64]") -> bytes:
    """1 for each count above 0, without a Python step a block: a count is one if any of its bytes is."""
    raw, width = bytes(memoryview(counts)), memoryview(counts).itemsize
    any_bit = 0
    for lane in range(width):
        any_bit |= int.from_bytes(raw[lane::width])
    return any_bit.to_bytes(len(counts)).translate(_ANY)


def _first_of(first: bytes, second: bytes) -> bytes:
    """Each byte of ``first``; where it is 0, that of ``second``."""
    gaps = int.from_bytes(first.translate(_NONE))
    return (int.from_bytes(first) | (int.from_bytes(second) & gaps)).to_bytes(len(first))


def _owners(pool: Pool, leases: list[Lease]) -> Generator[None, None, tuple["array[int]", list[int]]]:
    """Who holds each block, and how many blocks each has to itself.

    Leases go by their place in ``leases``, from 1. 0 stands for nobody, one more than the last for several.
    """
    owners = array("i", [0]) * pool.config.num_blocks
    several = len(leases) + 1
    num_own = [0] * (several + 1)
    owners[NULL_BLOCK] = several  # so that it is no lease's
    work = 0
    for number, lease in enumerate(leases, start=1):
        for piece in held_pieces(pool, lease):
            num_new = 0
            for block in piece:
                before = owners[block]
                if before == 0:
                    owners[block] = number
                    num_new += 1
                elif before != number:
                    owners[block] = several
                    num_own[before] -= 1
            num_own[number] += num_new
            work += len(piece) + PIECE_BLOCKS
            if work >= SLICE_BLOCKS:
                work = 0
                yield
        work += PIECE_BLOCKS
    owners[NULL_BLOCK] = num_own[several] = 0
    return owners, num_own
