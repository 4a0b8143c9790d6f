"""A journal in a data directory: records in SQLite with a write-ahead log, snapshots as files.

An append is one INSERT a pool, in one transaction, and has a number of its own, its turn: see `turn_mark`.

    pools     key, name, definition, the number up to which records were forgotten
    records   position = key * 2^40 + number of the last command, turn, checksum, payload
    turns     the last turn of a transaction without records
"""

import contextlib
import re
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import xxhash

from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.errors import (
    RESTORE,
    AppendFailed,
    DamagedJournal,
    JournalError,
    NewerJournal,
)
from blockyard.server.journal.interface import PoolKey, Record, Snapshot, StoredPool
from blockyard.server.journal.snapshot_file import read_snapshot, write_snapshot
from blockyard.server.journal.sync import Sync
from blockyard.server.journal.turn_mark import TurnMark, check_mark

JOURNAL_FORMAT = 1

MAX_NUMBER = 2**40
"""Commands of one pool: thirty years of a thousand a second."""

LOG_BYTES = 16 * 1024 * 1024
"""The log is folded into the database once it is larger."""

ROWS_A_TRIM = 500
"""Records forgotten at a time: about a millisecond."""

NUM_PASSES = 3
"""Over the log beside the one that writes: each leaves what was written meanwhile, which is less and less."""

ROWS_A_PAGE = 50
"""Records read at a time: no reading transaction stays open between, which would hold up the folding."""

BUSY_S = 10.0
"""How long an append waits for the log to be folded, at most."""

_SCHEMA = """
CREATE TABLE pools (
    key INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, definition BLOB NOT NULL,
    checksum BLOB NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0);
CREATE TABLE records (
    position INTEGER PRIMARY KEY, turn INTEGER NOT NULL, checksum BLOB NOT NULL, payload BLOB NOT NULL);
CREATE TABLE turns (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), turn INTEGER NOT NULL);
INSERT INTO turns VALUES (1, 0);
"""
_APPLICATION_ID = 0x626C6B79  # "blky"
_SNAPSHOT_NAME = re.compile(r"(\d+)-(\d+)\.snapshot")
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)


class SqliteJournal:
    """The journal of ``data_dir``, made if there is none. Whoever writes has locked the directory.

    Args:
        data_dir: Where.
        sync: What an append survives.
        read_only: Only to be read, beside the one that writes.

    Attributes:
        num_drops: Pools that were dropped since it was opened.

    Raises:
        DamagedJournal: It cannot be read, or has lost its end.
        NewerJournal: A later version wrote it.
        JournalError: It cannot be opened now.
    """

    def __init__(self, data_dir: DataDir, *, sync: Sync = Sync.PROCESS, read_only: bool = False) -> None:
        self.waits_for_disk = sync is Sync.FULL
        self._data_dir = data_dir
        self._lock = threading.Lock()  # one append at a time, whichever thread it comes from
        self._has_failed = False
        self.num_drops = 0
        self._folding: threading.Thread | None = None
        with self._reading():
            if not data_dir.journal.exists():
                if read_only or data_dir.mark.exists() or any(data_dir.snapshots.glob("*")):
                    raise DamagedJournal(f"{data_dir.path} has no journal, though there was one. {RESTORE}")
                self._make()
            self._database = self._open(sync, read_only=read_only)
            self._turn = self._last_turn()
        self._mark = None if read_only else TurnMark(data_dir.mark, self._turn)

    def check(self) -> None:
        """Look at every record, wherever it is, and at the end of the journal of a server that is stopped.

        Raises:
            DamagedJournal: Something is not as it was written.
        """
        check_mark(self._data_dir.mark, self._turn)
        with self._reading():
            last_key = max((pool.key for pool in self.pools()), default=0)
            (ever,) = self._database.execute(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'pools'"
            ).fetchone()
            before = 0
            for position, checksum, payload in self._pages(0, 2**63 - 1):
                key, number = divmod(position, MAX_NUMBER)
                if position <= before or key > max(ever, last_key):
                    raise DamagedJournal(
                        f"{self._data_dir.journal} has records out of their places. {RESTORE}"
                    )
                self._check_record(PoolKey(key), number, payload, checksum)
                before = position

    def pools(self) -> list[StoredPool]:
        """See `Journal.pools`."""
        stored = []
        with self._reading():
            rows = self._database.execute("SELECT key, name, definition, checksum FROM pools ORDER BY key")
            for key, name, definition, checksum in rows.fetchall():
                if checksum != _pool_checksum(key, name, definition):
                    raise DamagedJournal(
                        f"what pool {name!r} was made from is not as it was written. {RESTORE}"
                    )
                stored.append(StoredPool(key=PoolKey(key), name=name, definition=definition))
        return stored

    def create(self, name: str, definition: bytes) -> PoolKey:
        """See `Journal.create`."""
        with self._turning() as database:
            added = database.execute(
                "INSERT INTO pools (name, definition, checksum) VALUES (?, ?, x'')", (name, definition)
            )
            assert added.lastrowid is not None, "a row was added"
            key = PoolKey(added.lastrowid)
            checksum = _pool_checksum(key, name, definition)
            database.execute("UPDATE pools SET checksum = ? WHERE key = ?", (checksum, key))
        return key

    def drop(self, key: PoolKey) -> None:
        """See `Journal.drop`. Its records and snapshots go with `truncate`."""
        with self._turning() as database:
            database.execute("DELETE FROM pools WHERE key = ?", (key,))
        self.num_drops += 1

    def append(self, batch: Sequence[Record]) -> None:
        """See `Journal.append`."""
        if not batch:
            return
        with self._lock, self._writing():
            turn = self._turn + 1
            rows = [
                (
                    record.key * MAX_NUMBER + record.number,
                    turn,
                    _checksum(record.key, record.number, record.payload),
                    record.payload,
                )
                for record in batch
            ]
            insert = "INSERT INTO records VALUES (?, ?, ?, ?)"
            if len(rows) == 1:
                self._database.execute(insert, rows[0])
            else:
                with self._transaction() as database:
                    database.executemany(insert, rows)
            self._note_turn(turn)

    def last_number(self, key: PoolKey) -> int:
        """See `Journal.last_number`."""
        query = "SELECT max(position) FROM records WHERE position BETWEEN ? AND ?"
        begin, end = _positions(key)
        with self._reading():
            last = self._database.execute(query, (begin, end)).fetchone()[0]
        return last - begin if last else 0

    def read(self, key: PoolKey, after: int) -> Iterator[Record]:
        """See `Journal.read`."""
        begin, end = _positions(key)
        with self._reading():
            for position, checksum, payload in self._pages(begin + after + 1, end):
                self._check_record(key, position - begin, payload, checksum)
                yield Record(key=key, number=position - begin, payload=payload)

    def save_snapshot(self, key: PoolKey, snapshot: Snapshot) -> None:
        """See `Journal.save_snapshot`. May be called beside the one that writes."""
        *_, latest = 0, *map(_number_of, self._snapshots_of(key))
        if latest > snapshot.number:
            return  # by a process whose server has ended: another has taken a later one since
        write_snapshot(self._data_dir.snapshots / f"{key}-{snapshot.number}.snapshot", snapshot)
        for path in self._snapshots_of(key):
            if _number_of(path) < snapshot.number:
                path.unlink(missing_ok=True)

    def snapshot(self, key: PoolKey) -> Snapshot | None:
        """See `Journal.snapshot`."""
        with self._reading():
            found = self._database.execute("SELECT forgotten FROM pools WHERE key = ?", (key,)).fetchone()
            snapshot = self._latest_snapshot(key)
        forgotten = found[0] if found else 0
        if forgotten > (snapshot.number if snapshot else 0):
            raise DamagedJournal(
                f"a snapshot is missing in {self._data_dir.snapshots}: records up to {forgotten} were "
                f"forgotten for it. {RESTORE}"
            )
        return snapshot

    def truncate(self, key: PoolKey) -> bool:
        """See `Journal.truncate`."""
        begin, end = _positions(key)
        paths = self._snapshots_of(key)
        with self._reading():
            if self._database.execute("SELECT 1 FROM pools WHERE key = ?", (key,)).fetchone():
                end = begin + (_number_of(paths[-1]) if paths else 0)
            else:
                for path in paths:
                    with contextlib.suppress(OSError):
                        path.unlink()
            positions = self._database.execute(
                "SELECT position FROM records WHERE position BETWEEN ? AND ? LIMIT ?",
                (begin, end, ROWS_A_TRIM),
            ).fetchall()
        if not positions:
            return False
        last = positions[-1][0]
        with self._turning() as database:
            database.execute("UPDATE pools SET forgotten = ? WHERE key = ?", (last - begin, key))
            database.execute("DELETE FROM records WHERE position BETWEEN ? AND ?", (begin, last))
        return len(positions) == ROWS_A_TRIM

    def dropped(self) -> list[PoolKey]:
        """See `Journal.dropped`."""
        with self._reading():
            known = {key for (key,) in self._database.execute("SELECT key FROM pools").fetchall()}
            of_snapshots = {int(found[1]) for found in self._snapshot_names()}
            return [PoolKey(key) for key in sorted({*self._keys_of_records(), *of_snapshots} - known)]

    def fold_if_large(self) -> None:
        """Fold the log into the database in a thread, if it has grown large and nobody does so yet."""
        if self._folding is not None and self._folding.is_alive():
            return
        with contextlib.suppress(OSError):
            if self._data_dir.log.stat().st_size > LOG_BYTES:
                self._folding = threading.Thread(target=self._fold, name="fold the journal", daemon=True)
                self._folding.start()

    def close(self) -> None:
        """See `Journal.close`: the log is folded into the database."""
        if self._folding is not None:
            self._folding.join()
        if self._mark is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("PRAGMA busy_timeout = 0")  # readers are not waited for
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._mark.close()
        self._database.close()

    def _fold(self) -> None:
        """First most of it, beside the one that writes; then what has come since, while it waits.

        Nothing waits for readers: while there are some, the log stays, and the next look tries again.
        """
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect(busy_s=0)) as database:
            for _ in range(NUM_PASSES):
                database.execute("PRAGMA wal_checkpoint(PASSIVE)")
            with self._lock:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _connect(self, *, read_only: bool = False, busy_s: float = BUSY_S) -> sqlite3.Connection:
        mode = "ro" if read_only else "rw"
        return sqlite3.connect(
            f"{self._data_dir.journal.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=busy_s,
        )

    def _open(self, sync: Sync, *, read_only: bool) -> sqlite3.Connection:
        database = self._connect(read_only=read_only)
        if database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise DamagedJournal(f"{self._data_dir.journal} is no journal of blockyard's. {RESTORE}")
        found_format = database.execute("PRAGMA user_version").fetchone()[0]
        if found_format != JOURNAL_FORMAT:
            raise NewerJournal(
                f"{self._data_dir.journal} is of format {found_format}, and this version reads "
                f"{JOURNAL_FORMAT}: start the version that wrote it"
            )
        if not read_only:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {'FULL' if sync is Sync.FULL else 'NORMAL'}")
            database.execute("PRAGMA wal_autocheckpoint = 0")
        return database

    def _make(self) -> None:
        """An empty journal: beside its place first, so that one that is there is whole."""
        beside = self._data_dir.unfinished
        beside.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(beside)) as database:
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {JOURNAL_FORMAT}")
            database.executescript(_SCHEMA)
        beside.replace(self._data_dir.journal)

    def _last_turn(self) -> int:
        """The turn of the last append: of the last record of a pool, or one without records."""
        turn: int = self._database.execute("SELECT turn FROM turns").fetchone()[0]
        last = "SELECT turn FROM records WHERE position <= ? ORDER BY position DESC LIMIT 1"
        for key in self._keys_of_records():
            turn = max(turn, self._database.execute(last, _positions(key)[1:]).fetchone()[0])
        return turn

    def _keys_of_records(self) -> Iterator[PoolKey]:
        """Of all pools that have records, also of those that were dropped."""
        following = "SELECT min(position) FROM records WHERE position > ?"
        end = -1
        while (position := self._database.execute(following, (end,)).fetchone()[0]) is not None:
            key = PoolKey(position // MAX_NUMBER)
            yield key
            end = _positions(key)[1]

    def _pages(self, begin: int, end: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Position, checksum and payload of the records from ``begin`` to ``end``."""
        query = "SELECT position, checksum, payload FROM records WHERE position BETWEEN ? AND ? LIMIT ?"
        while True:
            rows = self._database.execute(query, (begin, end, ROWS_A_PAGE)).fetchall()
            yield from rows
            if len(rows) < ROWS_A_PAGE:
                return
            begin = rows[-1][0] + 1

    def _check_record(self, key: PoolKey, number: int, payload: bytes, checksum: bytes) -> None:
        if checksum != _checksum(key, number, payload):
            raise DamagedJournal(
                f"record {number} of {self._data_dir.journal} is not as it was written. {RESTORE}"
            )

    def _note_turn(self, turn: int) -> None:
        assert self._mark is not None, "this journal is only to be read"
        self._turn = turn
        self._mark.note(turn)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """What goes wrong meanwhile, told apart: damage, and what is only so now.

        Raises:
            DamagedJournal, JournalError: Something has gone wrong.
        """
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in _CORRUPT:
                raise self._damaged(error) from error
            raise JournalError(
                f"{self._data_dir.journal} cannot be used now: {error}. Nothing says that it is damaged: "
                "look at the disk's space, at permissions, and at who else has it open; then start again"
            ) from error
        except (AttributeError, TypeError, ValueError, OverflowError, struct.error) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DamagedJournal:
        return DamagedJournal(f"{self._data_dir.journal} cannot be read: {error}. {RESTORE}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A write; after one that has failed there are no others, which would be behind a gap.

        Raises:
            AppendFailed: It has failed.
        """
        if self._has_failed:
            raise AppendFailed("the journal could not be written before")
        try:
            yield
        except Exception as error:
            self._has_failed = True
            raise AppendFailed(f"the journal could not be written: {error}") from error

    @contextlib.contextmanager
    def _turning(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is a turn without records. Raises AppendFailed."""
        with self._lock, self._writing():
            turn = self._turn + 1
            with self._transaction() as database:
                database.execute("UPDATE turns SET turn = ?", (turn,))
                yield database
            self._note_turn(turn)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise

    def _latest_snapshot(self, key: PoolKey) -> Snapshot | None:
        """Raises as `snapshot`."""
        while paths := self._snapshots_of(key):
            try:
                return read_snapshot(paths[-1])
            except FileNotFoundError:
                continue  # a later one has just taken its place
        return None

    def _snapshots_of(self, key: PoolKey) -> list[Path]:
        """Files of a pool's snapshots, the latest last."""
        names = [found[0] for found in self._snapshot_names() if int(found[1]) == key]
        return sorted((self._data_dir.snapshots / name for name in names), key=_number_of)

    def _snapshot_names(self) -> list[re.Match[str]]:
        """Of all snapshots: other files are not ours."""
        names = [path.name for path in self._data_dir.snapshots.glob("*")]
        return [found for name in names if (found := _SNAPSHOT_NAME.fullmatch(name))]


def _positions(key: PoolKey) -> tuple[int, int]:
    """Before the first and at the last position that records of a pool can have."""
    return key * MAX_NUMBER, (key + 1) * MAX_NUMBER - 1


def _number_of(snapshot: Path) -> int:
    found = _SNAPSHOT_NAME.fullmatch(snapshot.name)
    assert found is not None, "a snapshot has its number in its name"
    return int(found[2])


def _pool_checksum(key: PoolKey, name: str, definition: bytes) -> bytes:
    return _checksum(key, 0, name.encode() + b"\n" + definition)


def _checksum(key: PoolKey, number: int, payload: bytes) -> bytes:
    digest = xxhash.xxh3_64(payload)
    digest.update(struct.pack("<QQ", key, number))
    return digest.digest()
