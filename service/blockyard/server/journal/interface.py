"""What a journal is, whatever it is kept in.

Each pool has a line of records of its own, numbered by commands from 1. A record holds the commands that one
turn of the server's loop gave the pool, and is known by the number of its last:

    records     | 1 2 3 | 4 | 5 6 |  ...        read(key, after=3) begins with the second
    snapshot              ^ of number 4: takes the place of the records up to it
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

PoolKey = NewType("PoolKey", int)
"""A pool in a journal; never used twice, though names may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPool:
    """A pool that was created and not deleted.

    Attributes:
        name: Its name.
        definition: What it was created from.
    """

    key: PoolKey
    name: str
    definition: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Commands of one pool.

    Attributes:
        number: Of the last of them.
        payload: They themselves.
    """

    key: PoolKey
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A pool's state after the command of ``number``."""

    number: int
    state: bytes


class Journal(Protocol):
    """Read and written by one thread, appended to by any. All that it returns from is durable, as promised.

    Attributes:
        waits_for_disk: Whether an append takes milliseconds, and belongs into a thread.
    """

    waits_for_disk: bool

    def check(self) -> None:
        """Look at all that there is, as far as that can be told by itself. Raises DamagedJournal."""
        ...

    def pools(self) -> list[StoredPool]:
        """All pools, in the order of their creation."""
        ...

    def create(self, name: str, definition: bytes) -> PoolKey:
        """A new pool's key. Raises AppendFailed."""
        ...

    def drop(self, key: PoolKey) -> None:
        """Forget a pool. Raises AppendFailed."""
        ...

    def append(self, batch: Sequence[Record]) -> None:
        """Add records, all or none. Raises AppendFailed."""
        ...

    def last_number(self, key: PoolKey) -> int:
        """Of the last command in the records; 0 where there are none. Raises DamagedJournal."""
        ...

    def read(self, key: PoolKey, after: int) -> Iterator[Record]:
        """The records behind the command of number ``after``, in order. Raises DamagedJournal."""
        ...

    def save_snapshot(self, key: PoolKey, snapshot: Snapshot) -> None:
        """Keep a snapshot, in place of an earlier one. Raises AppendFailed."""
        ...

    def snapshot(self, key: PoolKey) -> Snapshot | None:
        """The latest one; None where there never was one. Raises DamagedJournal, NewerJournal."""
        ...

    def truncate(self, key: PoolKey) -> bool:
        """Forget some of the records that the latest snapshot has, or some of a pool that was dropped.

        Returns:
            Whether there may be more. Raises AppendFailed.
        """
        ...

    def dropped(self) -> list[PoolKey]:
        """Pools that were dropped and of which something is left, for `truncate`. Raises DamagedJournal."""
        ...

    def close(self) -> None:
        """The end, of a clean stop."""
        ...
