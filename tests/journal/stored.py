"""Journals in a folder of a test's own."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from blockyard.core.commands import Command
from blockyard.server.journal.command_codec import encode_command, join_batch
from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.interface import PoolKey, Record
from blockyard.server.journal.sqlite_journal import SqliteJournal
from blockyard.server.journal.sync import Sync


@contextmanager
def opened(path: Path, *, sync: Sync = Sync.PROCESS) -> Iterator[SqliteJournal]:
    """The journal in ``path``, made if need be."""
    data_dir = DataDir(path)
    data_dir.make()
    with closing(SqliteJournal(data_dir, sync=sync)) as journal:
        yield journal


def record(key: PoolKey, number: int, payload: bytes = b"commands") -> Record:
    return Record(key=key, number=number, payload=payload)


def batch(*commands: Command) -> bytes:
    """A record's payload: commands at time 0."""
    return join_batch([encode_command(command, 0) for command in commands])


def as_after_a_kill(journal_path: Path, copy: Path) -> Path:
    """What a process that is killed now would leave behind, as a copy."""
    shutil.copytree(journal_path, copy)
    return copy


def flip(path: Path, position: int) -> None:
    """Damage one byte of a file; a negative position counts from its end."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x20
    path.write_bytes(content)
