"""What stands in a pool's stream: batches of commands, and who owns the pool from there on.

    | take-over a, 1 | batch | batch | hand-over to b | take-over b, 2 | batch | ...

Every entry has the ownership number of whoever wrote it, and the number of the last command up to it. A batch
that is larger than a message goes in parts, the last of which is a batch's; parts without it, as a dead owner
leaves them, are none.
"""

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

Session = NewType("Session", str)
"""One lease of a node, until it lapsed: a node that has lost its lease comes back under another session."""

_HEAD = struct.Struct(">BBQQ")  # format, kind, ownership, number
_FORMAT = 1


class EntryKind(IntEnum):
    """The value is what travels."""

    PART = 1
    """Beginning of a batch."""
    BATCH = 2
    """Commands, as `join_batch` has them."""
    TAKE_OVER = 3
    """Whoever wrote it owns the pool from here on."""
    HAND_OVER = 4
    """Nobody does, and one node is to take over."""
    DELETED = 5
    """The pool is no more."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who owns a pool: a node, and under which of its leases."""

    node: str
    session: Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message of a stream.

    Attributes:
        kind: What it says.
        ownership: Number of the owner that wrote it; of a take-over, the new one.
        number: Of the last command that the pool was given, with this entry.
        payload: Of a batch or a part: its bytes. Of the others see `take_over` and `hand_over`.
    """

    kind: EntryKind
    ownership: int
    number: int
    payload: bytes = b""

    @classmethod
    def take_over(cls, holder: Holder, ownership: int, number: int) -> "Entry":
        """``holder`` owns the pool from here on."""
        payload = json.dumps({"node": holder.node, "session": holder.session}).encode()
        return cls(kind=EntryKind.TAKE_OVER, ownership=ownership, number=number, payload=payload)

    @classmethod
    def hand_over(cls, node: str, ownership: int, number: int) -> "Entry":
        """``node`` is to take over."""
        return cls(kind=EntryKind.HAND_OVER, ownership=ownership, number=number, payload=node.encode())

    @property
    def holder(self) -> Holder:
        """Who takes over."""
        assert self.kind is EntryKind.TAKE_OVER, "nobody else takes over"
        told = json.loads(self.payload)
        return Holder(told["node"], Session(told["session"]))

    @property
    def heir(self) -> str:
        """The node that a pool is handed over to."""
        assert self.kind is EntryKind.HAND_OVER, "nothing else is handed over"
        return self.payload.decode()

    def encode(self) -> bytes:
        """As it travels."""
        return _HEAD.pack(_FORMAT, self.kind, self.ownership, self.number) + self.payload

    @classmethod
    def decode(cls, message: bytes) -> "Entry":
        """The inverse.

        Raises:
            ValueError: It is none, or of a later version.
        """
        try:
            found_format, kind, ownership, number = _HEAD.unpack_from(message)
        except struct.error as error:
            raise ValueError(f"no entry: {error}") from error
        if found_format != _FORMAT:
            raise ValueError(f"an entry of format {found_format}, and this version reads {_FORMAT}")
        return cls(kind=EntryKind(kind), ownership=ownership, number=number, payload=message[_HEAD.size :])


def in_messages(entry: Entry, max_bytes: int) -> list[Entry]:
    """A batch as the entries that it travels in, none larger than ``max_bytes``."""
    room = max_bytes - _HEAD.size
    pieces = [entry.payload[begin : begin + room] for begin in range(0, len(entry.payload), room)] or [b""]
    return [
        Entry(
            kind=EntryKind.PART if place < len(pieces) - 1 else entry.kind,
            ownership=entry.ownership,
            number=entry.number,
            payload=piece,
        )
        for place, piece in enumerate(pieces)
    ]
