"""The data directory of a server, opened: its journal, and who keeps it short."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.directory_snapshots import DirectorySnapshots
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.line import Line
from blockyard.server.journal.snapshots import SnapshotKeeper, SnapshotRule
from blockyard.server.journal.sqlite_journal import SqliteJournal
from blockyard.server.journal.sync import Sync
from blockyard.server.settings import Settings

MEBIBYTE = 2**20


def snapshot_rule(settings: Settings) -> SnapshotRule:
    """As ``settings`` have it."""
    return SnapshotRule(
        max_commands=settings.snapshot_commands,
        max_bytes=settings.snapshot_mib * MEBIBYTE,
        max_age_s=settings.snapshot_interval_s,
    )


class Durable:
    """Owns the data directory of ``settings`` from here to the end of the ``with`` block.

    Raises:
        JournalError: Another server owns it, or its journal cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._data_dir = DataDir(Path(settings.data_dir))
        self._rule = snapshot_rule(settings)
        self._data_dir.make()
        os.umask(0o077)  # SQLite makes files of its own beside the journal
        self._data_dir.lock()
        self._data_dir.clear_unfinished()
        try:
            self.journal = SqliteJournal(self._data_dir, sync=Sync(settings.sync))
        except BaseException:
            self._data_dir.unlock()
            raise

    @property
    def path(self) -> Path:
        """Of the data directory."""
        return self._data_dir.path.absolute()

    def keeper(
        self,
        lines: Callable[[], Iterable[Line]],
        on_failure: Callable[[AppendFailed], object],
        figures: JournalFigures,
    ) -> SnapshotKeeper:
        """Who takes snapshots of the pools of ``lines``."""
        snapshots = DirectorySnapshots(self.journal, self._data_dir.path)
        return SnapshotKeeper(snapshots, lines, self._rule, on_failure, figures)

    def num_bytes(self) -> dict[str, int]:
        """Sizes of the journal's files now: its ``database``, and its ``log`` of what was written last."""
        files = {"database": self._data_dir.journal, "log": self._data_dir.log}
        return {name: path.stat().st_size for name, path in files.items() if path.exists()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()
        self._data_dir.unlock()
