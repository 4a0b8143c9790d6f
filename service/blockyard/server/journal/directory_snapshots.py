"""Snapshots in a data directory, and the records of its journal that they make superfluous.

Records go a few at a time, so that no call waits for long.
"""

import asyncio
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.sqlite_journal import SqliteJournal

PAUSE_S = 0.002
"""Between two lots of records that go."""


class DirectorySnapshots:
    """Those of a server's own journal.

    Args:
        journal: The journal.
        data_dir: Where it is.
    """

    def __init__(self, journal: SqliteJournal, data_dir: Path) -> None:
        self._journal = journal
        self._data_dir = data_dir
        self._known: AbstractSet[PoolKey] = set()
        self._num_drops = -1  # not looked yet

    def process(self, key: PoolKey) -> Sequence[str]:
        """See `Snapshots.process`, and `take_snapshot`."""
        module = "blockyard.server.journal.take_snapshot"
        return module, str(self._data_dir.absolute()), str(key), str(os.getpid())

    async def tend(self, keys: AbstractSet[PoolKey]) -> None:
        """Keep the log short; forget pools that were dropped, and what snapshots before the start have."""
        self._journal.fold_if_large()
        num_drops = self._journal.num_drops
        dropped: list[PoolKey] = []
        if num_drops != self._num_drops:
            dropped = await asyncio.to_thread(self._journal.dropped)  # it waits for an append under way
        for key in {*dropped, *(keys - self._known)}:
            await self.forget(key)
        self._num_drops = num_drops
        self._known = keys

    async def forget(self, key: PoolKey) -> None:
        """See `Snapshots.forget`."""
        while self._journal.truncate(key):  # noqa: ASYNC110 - a pause for others, not for an event
            await asyncio.sleep(PAUSE_S)
