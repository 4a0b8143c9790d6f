"""A pool's line of records: how far it has come, and the commands that follow in the journal."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from blockyard.server.journal.command_codec import Timed, decode_batch
from blockyard.server.journal.errors import RESTORE, DamagedJournal, NewerJournal
from blockyard.server.journal.interface import Journal, PoolKey, StoredPool


@dataclass(slots=True, eq=False)
class Line:
    """One pool's line of records: how far it has come.

    Attributes:
        number: Of the last command that was applied.
        num_bytes: Appended since the last snapshot.
        snapshot_number: Up to where the last snapshot goes.
        snapshot_s: When that was taken, by the monotonic clock; before the first, when this line was made.
        waiting: Commands that were applied and are not appended, as entries of a batch.
    """

    key: PoolKey
    number: int = 0
    num_bytes: int = 0
    snapshot_number: int = 0
    snapshot_s: float = field(default_factory=time.monotonic)
    waiting: list[bytes] = field(default_factory=list)

    @property
    def num_new_commands(self) -> int:
        """Those since the last snapshot."""
        return self.number - self.snapshot_number


def commands_after(journal: Journal, stored: StoredPool, line: Line) -> Iterator[Timed]:
    """The commands behind ``line``, which moves on with them: its ``number`` is that of the one at hand.

    Raises:
        DamagedJournal: One is missing, or is not as it was written.
        NewerJournal: A later version wrote one.
    """
    for record in journal.read(stored.key, after=line.number):
        try:
            batch = list(decode_batch(record.payload))
        except ValueError as error:
            raise NewerJournal(
                f"record {record.number} of pool {stored.name!r} was written by another version: {error}. "
                "Start the version that wrote it"
            ) from error
        if line.number + len(batch) != record.number:
            raise DamagedJournal(
                f"commands {line.number + 1} to {record.number - len(batch)} of pool {stored.name!r} are "
                f"missing in the journal. {RESTORE}"
            )
        line.num_bytes += len(record.payload)
        for timed in batch:
            line.number += 1
            yield timed
