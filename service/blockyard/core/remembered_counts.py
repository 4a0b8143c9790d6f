"""How often evicted content was used: remembered for a while, should it come back.

A table with a slot for the mark of each content, in which the newest record stays. A record is the count, a
stamp that says how many records ago it was made, and what of the mark does not follow from the slot:

    | 32 bits of the mark | 25 bits: stamp | 6 bits: count |

Other content is taken for it too rarely to matter, and is then only kept longer.
"""

from typing import Any, Final

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.packing import pack_long_vector, unpack_long_vector

_COUNT_BITS: Final = 6
_STAMP_BITS: Final = 25
_MARK_BITS: Final = 32
_COUNT_MASK: Final = 2**_COUNT_BITS - 1
_STAMP_MASK: Final = 2**_STAMP_BITS - 1
_MARK_MASK: Final = 2**_MARK_BITS - 1
_REST_BITS: Final = _STAMP_BITS + _COUNT_BITS


class RememberedCounts:
    """At first, none.

    Args:
        max_records: How many are remembered, at least 1; fewer where some fall into one slot.
    """

    __slots__ = ("_max_records", "_shift", "_slots", "_stamp")

    def __init__(self, max_records: int) -> None:
        self._shift = max_records.bit_length()
        self._max_records = max_records
        self._slots = vec[i64]([0] * (1 << self._shift))
        self._stamp = 0
        """That of the last record; they come round."""

    def keep(self, marks: list[int], counts: list[int]) -> None:
        """Remember that what each of ``marks`` stands for was used so many times, 1 to 63."""
        slots = self._slots
        shift: i64 = self._shift
        slot_mask: i64 = len(slots) - 1
        stamp: i64 = self._stamp
        mark: i64
        count: i64
        for mark, count in zip(marks, counts):  # noqa: B905 - a plain zip compiles to a plain loop
            stamp = (stamp + 1) & _STAMP_MASK
            tag: i64 = (mark >> shift) & _MARK_MASK
            slots[mark & slot_mask] = (tag << _REST_BITS) | (stamp << _COUNT_BITS) | count
        self._stamp = stamp

    def num_known(self, marks: list[int]) -> int:
        """How many of ``marks``, from the first on, end with one that is remembered."""
        slots = self._slots
        shift: i64 = self._shift
        slot_mask: i64 = len(slots) - 1
        num_known = at = 0
        mark: i64
        for mark in marks:
            at += 1  # noqa: SIM113 - an unboxed count
            if slots[mark & slot_mask] >> _REST_BITS == (mark >> shift) & _MARK_MASK and self.recall(mark):
                num_known = at
        return num_known

    def recall(self, mark: int) -> int:
        """How often what ``mark`` stands for was used, as far as that is remembered; 0 where it is not."""
        own: i64 = mark
        shift: i64 = self._shift
        slot_mask: i64 = len(self._slots) - 1
        record = self._slots[own & slot_mask]
        if (record >> _REST_BITS) != (own >> shift) & _MARK_MASK:
            return 0
        stamp: i64 = self._stamp
        age = (stamp - (record >> _COUNT_BITS)) & _STAMP_MASK
        return int(record & _COUNT_MASK) if age < self._max_records else 0

    def to_state(self) -> dict[str, Any]:
        """What is remembered as plain data."""
        return {"slots": pack_long_vector(self._slots), "stamp": self._stamp}

    def load(self, state: dict[str, Any]) -> None:
        """Remember what was when `to_state` told ``state``."""
        self._slots = unpack_long_vector(state["slots"])
        self._stamp = state["stamp"]
