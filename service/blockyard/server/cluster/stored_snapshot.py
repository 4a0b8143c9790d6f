"""A pool's snapshot as its bucket has it: its state, and the place in its stream that it stands for."""

import json
import struct
from dataclasses import dataclass

from blockyard.server.cluster.entries import Holder, Session
from blockyard.server.journal.errors import NewerJournal

_FORMAT = 1
_HEAD = struct.Struct(">BI")  # format, bytes of the description that follows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A pool behind the message of ``sequence``.

    Attributes:
        sequence: In its stream.
        number: Of the last command that it was given.
        ownership: Number of its owner by then.
        holder: That owner; None where it was handed over.
        state: As `encode_state` has it.
    """

    sequence: int
    number: int
    ownership: int
    holder: Holder | None
    state: bytes

    def encode(self) -> bytes:
        """As it is stored."""
        holder = self.holder
        description = json.dumps(
            {
                "sequence": self.sequence,
                "number": self.number,
                "ownership": self.ownership,
                "holder": None if holder is None else [holder.node, holder.session],
            }
        ).encode()
        return _HEAD.pack(_FORMAT, len(description)) + description + self.state

    @classmethod
    def decode(cls, stored: bytes) -> "StoredSnapshot":
        """The inverse.

        Raises:
            NewerJournal: It is of a later version.
        """
        found_format, num_bytes = _HEAD.unpack_from(stored)
        if found_format != _FORMAT:
            raise NewerJournal(
                f"a snapshot is of format {found_format}, and this version reads {_FORMAT}: start the "
                "version that took it"
            )
        begin = _HEAD.size
        told = json.loads(stored[begin : begin + num_bytes])
        holder = told["holder"]
        return cls(
            sequence=told["sequence"],
            number=told["number"],
            ownership=told["ownership"],
            holder=None if holder is None else Holder(holder[0], Session(holder[1])),
            state=stored[begin + num_bytes :],
        )
