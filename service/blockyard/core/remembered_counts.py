"""How often evicted content was used: remembered for a while, should it come back.

A ring of records, each the mark of a block's content and its count, the newest written over the oldest; and a
hash table with chains to find them by their marks:

    heads[slot of a mark] -> record -> chain[record] -> ... -> 0, which is no record

A chain that grows too long, by bad luck or by hashes that are none, is cut off behind its newest records.
Beside its count a record keeps 57 bits of the mark: that other content is taken for it happens too rarely to
matter, and such content is only kept longer.
"""

from typing import Any, Final

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.packing import pack_long_vector, pack_vector, unpack_long_vector, unpack_vector

_MARK_BITS: Final = 57
_MARK_MASK: Final = 2**_MARK_BITS - 1
_MAX_CHAIN: Final = 8


class RememberedCounts:
    """At first, none.

    Args:
        max_records: How many are remembered, at least 1.
    """

    __slots__ = ("_chain", "_heads", "_mask", "_next", "_records")

    def __init__(self, max_records: int) -> None:
        size = 1 << (max_records - 1).bit_length()
        self._mask: i64 = size - 1
        self._heads = vec[i64]([0] * size)
        self._chain = vec[i64]([0] * (max_records + 1))
        self._records = vec[i64]([0] * (max_records + 1))
        self._next = 1
        """The record to be written next."""

    def keep(self, mark: int, count: int) -> None:
        """Remember that what ``mark`` stands for was used ``count`` times, 1 to 63."""
        at: i64 = self._next
        if self._records[at]:
            self._unlink(at)
        own: i64 = mark & _MARK_MASK
        self._records[at] = (count << _MARK_BITS) | own
        self._link(at)
        self._next = at + 1 if at + 1 < len(self._records) else 1

    def recall(self, marks: list[int]) -> list[int]:
        """Of each of ``marks`` how often it was used, as far as that is remembered; 0 where it is not."""
        heads, chain, records, mask = self._heads, self._chain, self._records, self._mask
        counts: list[int] = []
        mark: i64
        for mark in marks:
            at = heads[mark & mask]
            while at and (records[at] ^ mark) & _MARK_MASK:
                at = chain[at]
            counts.append(records[at] >> _MARK_BITS)  # of no record, none
        return counts

    def _link(self, record: "i64") -> None:
        chain = self._chain
        slot = self._records[record] & self._mask
        chain[record] = self._heads[slot]
        self._heads[slot] = record
        at: i64 = record
        for _ in range(_MAX_CHAIN - 1):
            at = chain[at]
            if not at:
                return
        chain[at] = 0

    def _unlink(self, record: "i64") -> None:
        """Take a record out of its chain, unless it was cut off."""
        chain = self._chain
        slot = self._records[record] & self._mask
        at = self._heads[slot]
        if at == record:
            self._heads[slot] = chain[record]
            return
        while at and chain[at] != record:
            at = chain[at]
        if at:
            chain[at] = chain[record]

    def to_state(self) -> dict[str, Any]:
        """What is remembered as plain data."""
        return {
            "heads": pack_vector(self._heads),
            "chain": pack_vector(self._chain),
            "records": pack_long_vector(self._records),
            "next": self._next,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Remember what was when `to_state` told ``state``."""
        self._heads = unpack_vector(state["heads"])
        self._chain = unpack_vector(state["chain"])
        self._records = unpack_long_vector(state["records"])
        self._next = state["next"]
