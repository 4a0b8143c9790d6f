"""The data directory: one owner, and the places of its files.

    journal.sqlite    the journal, with its log beside it, which SQLite names
    journal.new       one that is being made
    journal.mark      the number of the last append
    snapshots/        of each pool the latest: KEY-NUMBER.snapshot
    lock              locked by the owner, whose process id it has

Only who owns it may read it: commands have the token ids of their callers.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from blockyard.server.journal.errors import DataDirInUse, JournalError


class DataDir:
    """The directory at ``path``; see `make` and `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal.sqlite"
        self.log = path / "journal.sqlite-wal"
        self.mark = path / "journal.mark"
        self.unfinished = path / "journal.new"
        self.snapshots = path / "snapshots"
        self._lock: int | None = None

    def make(self) -> None:
        """Make what is missing of it, readable for its owner alone.

        Raises:
            JournalError: It cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.snapshots.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise JournalError(
                f"the data directory {self.path} cannot be made or written: {error.strerror}; choose another "
                "with --data-dir, or keep nothing with --volatile"
            ) from error

    def lock(self) -> None:
        """Own the directory until this process ends.

        Raises:
            DataDirInUse: Another process owns it.
            JournalError: Its files cannot be written, or not be locked.
        """
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(
                f"the data directory {self.path} cannot be written: {error.strerror}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise DataDirInUse(
                f"the data directory {self.path} belongs to another server (process {owner or 'unknown'}): "
                "stop it first, or give this one a --data-dir of its own, or --volatile"
            ) from None
        except OSError as error:
            os.close(lock)
            raise JournalError(
                f"the data directory {self.path} cannot be locked: {error.strerror}; a server needs one on a "
                "file system with flock"
            ) from error
        with contextlib.suppress(OSError):  # on a full disk it owns it all the same
            os.truncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        self._lock = lock

    def clear_unfinished(self) -> None:
        """Remove what processes left behind that ended while they wrote a snapshot."""
        for path in self.snapshots.glob("*.part"):
            path.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Own it no more."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
