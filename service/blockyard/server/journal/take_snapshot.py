"""Take a snapshot of one pool beside the server that owns it: ``python -m ... DATA_DIR KEY SERVER``.

A snapshot is nothing but the journal, replayed: so a process of its own takes it from what the server has
written, and the server does not stop for it. Its output ends with the snapshot's number, if one was taken.
"""

import os
import sys
from contextlib import closing
from pathlib import Path

from blockyard.server import logs
from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.interface import PoolKey, Snapshot
from blockyard.server.journal.pool_state import encode_state
from blockyard.server.journal.recovery import recover_pool
from blockyard.server.journal.sqlite_journal import SqliteJournal

NICENESS = 5
"""A snapshot is in less of a hurry than a server."""


def main(path: Path, key: PoolKey, server: int) -> None:
    """Take it for the process of ``server``; of a pool that was dropped in the meantime, none."""
    os.nice(NICENESS)
    logs.configure("error", "console")  # standard output is the server's
    with closing(SqliteJournal(DataDir(path), read_only=True)) as journal:
        found = recover_pool(journal, key)
        if found is None or os.getppid() != server:  # which has ended: another may own the directory
            return
        journal.save_snapshot(key, Snapshot(number=found.line.number, state=encode_state(found.pool)))
        print(found.line.number)  # noqa: T201 - for the server


if __name__ == "__main__":
    main(Path(sys.argv[1]), PoolKey(int(sys.argv[2])), int(sys.argv[3]))
