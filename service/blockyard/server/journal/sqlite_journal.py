"""A journal in a data directory: records in SQLite with a write-ahead log, snapshots as files.

An append is one INSERT a pool, in one transaction.

    pools     key, name, definition, the number up to which records were forgotten
    records   position = key * 2^40 + number of the last command, turn, checksum, payload

SQLite drops the end of a damaged log without a word. So every append has a number of its own, its turn, and
the last one stands in a small mapped file as well: a journal that ends before it has lost something.
"""

import contextlib
import mmap
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import xxhash

from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.errors import RESTORE, AppendFailed, DamagedJournal, JournalError, NewerJournal
from blockyard.server.journal.interface import PoolKey, Record, Snapshot, StoredPool
from blockyard.server.journal.snapshot_file import read_snapshot, write_snapshot
from blockyard.server.journal.sync import Sync

JOURNAL_FORMAT = 1

MAX_NUMBER = 2**40
"""Commands of one pool: thirty years of a thousand a second."""

LOG_BYTES = 16 * 1024 * 1024
"""The log is folded into the database once it is larger."""

ROWS_A_TRIM = 500
"""Records forgotten at a time: about a millisecond."""

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
_TURN = struct.Struct("<Q")


class SqliteJournal:
    """The journal of ``data_dir``, made if there is none. Whoever writes has locked the directory.

    Args:
        data_dir: Where.
        sync: What an append survives.
        read_only: Only to be read, beside the one that writes.

    Raises:
        DamagedJournal: It cannot be read, or has lost its end.
        NewerJournal: A later version wrote it.
    """

    def __init__(self, data_dir: DataDir, *, sync: Sync = Sync.PROCESS, read_only: bool = False) -> None:
        self.waits_for_disk = sync is Sync.FULL
        self._data_dir = data_dir
        self._lock = threading.Lock()  # one append at a time, whichever thread it comes from
        is_new = not data_dir.journal.exists()
        if is_new and (read_only or data_dir.mark.exists() or any(data_dir.snapshots.iterdir())):
            raise DamagedJournal(f"there is no journal in {data_dir.path}, though there was: {RESTORE}")
        try:
            self._database = self._open(sync, read_only=read_only, is_new=is_new)
            self._turn = self._last_turn()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        self._mark: mmap.mmap | None = None
        if not read_only:
            self._mark = self._open_mark()
        self._folding: threading.Thread | None = None

    def pools(self) -> list[StoredPool]:
        """See `Journal.pools`. Raises DamagedJournal."""
        stored = []
        try:
            rows = self._database.execute("SELECT key, name, definition, checksum FROM pools ORDER BY key")
            for key, name, definition, checksum in rows.fetchall():
                if checksum != _checksum(key, 0, name.encode() + b"\n" + definition):
                    raise DamagedJournal(
                        f"what pool {name!r} was made from is not as it was written: {RESTORE}"
                    )
                stored.append(StoredPool(key=PoolKey(key), name=name, definition=definition))
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return stored

    def create(self, name: str, definition: bytes) -> PoolKey:
        """See `Journal.create`."""
        with self._turning() as database:
            added = database.execute(
                "INSERT INTO pools (name, definition, checksum) VALUES (?, ?, x'')", (name, definition)
            )
            key = PoolKey(added.lastrowid or 0)
            checksum = _checksum(key, 0, name.encode() + b"\n" + definition)
            database.execute("UPDATE pools SET checksum = ? WHERE key = ?", (checksum, key))
        return key

    def drop(self, key: PoolKey) -> None:
        """See `Journal.drop`. Its records go with `truncate`."""
        with self._turning() as database:
            database.execute("DELETE FROM pools WHERE key = ?", (key,))
        for path in self._snapshots_of(key):
            path.unlink(missing_ok=True)

    def append(self, batch: Sequence[Record]) -> None:
        """See `Journal.append`."""
        insert = "INSERT INTO records VALUES (?, ?, ?, ?)"
        with self._lock:
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
            try:
                if len(rows) == 1:
                    self._database.execute(insert, rows[0])
                else:
                    with self._transaction() as database:
                        database.executemany(insert, rows)
            except sqlite3.Error as error:
                raise _append_failed(error) from error
            self._note_turn(turn)

    def last_number(self, key: PoolKey) -> int:
        """See `Journal.last_number`."""
        query = "SELECT max(position) FROM records WHERE position BETWEEN ? AND ?"
        bounds = (key * MAX_NUMBER, (key + 1) * MAX_NUMBER - 1)
        try:
            last = self._database.execute(query, bounds).fetchone()[0]
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return last - bounds[0] if last else 0

    def read(self, key: PoolKey, after: int) -> Iterator[Record]:
        """See `Journal.read`."""
        query = "SELECT position, checksum, payload FROM records WHERE position BETWEEN ? AND ?"
        bounds = (key * MAX_NUMBER + after + 1, (key + 1) * MAX_NUMBER - 1)
        try:
            for position, checksum, payload in self._database.execute(query, bounds):
                number = position - key * MAX_NUMBER
                if checksum != _checksum(key, number, payload):
                    raise DamagedJournal(
                        f"record {number} of {self._data_dir.journal} is not as it was written: {RESTORE}"
                    )
                yield Record(key=key, number=number, payload=payload)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

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
        try:
            found = self._database.execute("SELECT forgotten FROM pools WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        snapshot = self._latest_snapshot(key)
        forgotten = found[0] if found else 0
        if forgotten > (snapshot.number if snapshot else 0):
            raise DamagedJournal(
                f"a snapshot is missing in {self._data_dir.snapshots}: records up to {forgotten} were "
                f"forgotten for it. {RESTORE}"
            )
        return snapshot

    def dropped(self) -> list[PoolKey]:
        """See `Journal.dropped`."""
        try:
            known = {key for (key,) in self._database.execute("SELECT key FROM pools").fetchall()}
            keys = {
                int(path.name.partition("-")[0]) for path in self._data_dir.snapshots.glob("*-*.snapshot")
            }
            following = "SELECT min(position) FROM records WHERE position >= ?"
            position = self._database.execute(following, (0,)).fetchone()[0]
            while position is not None:
                key = position // MAX_NUMBER
                keys.add(key)
                position = self._database.execute(following, ((key + 1) * MAX_NUMBER,)).fetchone()[0]
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return [PoolKey(key) for key in sorted(keys - known)]

    def truncate(self, key: PoolKey) -> bool:
        """See `Journal.truncate`. Of a pool that was dropped, all goes."""
        paths = self._snapshots_of(key)
        begin, end = key * MAX_NUMBER, (key + 1) * MAX_NUMBER
        try:
            is_known = self._database.execute("SELECT 1 FROM pools WHERE key = ?", (key,)).fetchone()
            if not is_known:
                for path in paths:
                    path.unlink(missing_ok=True)
            else:
                end = begin + (_number_of(paths[-1]) if paths else 0) + 1
            positions = self._database.execute(
                "SELECT position FROM records WHERE position >= ? AND position < ? LIMIT ?",
                (begin, end, ROWS_A_TRIM),
            ).fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        if not positions:
            return False
        last = positions[-1][0]
        with self._turning() as database:
            database.execute("UPDATE pools SET forgotten = ? WHERE key = ?", (last - begin, key))
            database.execute("DELETE FROM records WHERE position >= ? AND position <= ?", (begin, last))
        return len(positions) == ROWS_A_TRIM

    def close(self) -> None:
        """See `Journal.close`: the log is folded into the database."""
        if self._folding is not None:
            self._folding.join()
        if self._mark is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._mark.close()
        self._database.close()

    def fold_if_large(self) -> None:
        """Fold the log into the database in a thread, if it has grown large and nobody does so yet."""
        if self._folding is not None and self._folding.is_alive():
            return
        log = self._data_dir.journal.with_name(self._data_dir.journal.name + "-wal")
        with contextlib.suppress(OSError):
            if log.stat().st_size > LOG_BYTES:
                self._folding = threading.Thread(
                    target=self._fold, name="fold the journal's log", daemon=True
                )
                self._folding.start()

    def _fold(self) -> None:
        """First most of it, beside the one that writes; then what has come since, while it waits."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        mode = "ro" if read_only else "rwc"
        return sqlite3.connect(
            f"{self._data_dir.journal.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=10,
        )

    def _open(self, sync: Sync, *, read_only: bool, is_new: bool) -> sqlite3.Connection:
        if is_new:
            self._make()
        database = self._connect(read_only=read_only)
        if not read_only:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {'FULL' if sync == 'full' else 'NORMAL'}")
            database.execute("PRAGMA wal_autocheckpoint = 0")
        found_format = database.execute("PRAGMA user_version").fetchone()[0]
        if found_format > JOURNAL_FORMAT:
            raise NewerJournal(
                f"{self._data_dir.journal} is of format {found_format}, and this version reads up to "
                f"{JOURNAL_FORMAT}: start the version that wrote it"
            )
        if database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise DamagedJournal(f"{self._data_dir.journal} is no journal of blockyard's: {RESTORE}")
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
        """The turn of the last append: of the last record of one of the pools, or one without records."""
        turn: int = self._database.execute("SELECT turn FROM turns").fetchone()[0]
        last = "SELECT turn FROM records WHERE position < ? ORDER BY position DESC LIMIT 1"
        for (key,) in self._database.execute("SELECT key FROM pools").fetchall():
            found = self._database.execute(last, ((key + 1) * MAX_NUMBER,)).fetchone()
            turn = max(turn, found[0] if found else 0)
        return turn

    def _open_mark(self) -> mmap.mmap:
        """The file that has the last turn.

        Raises:
            DamagedJournal: The journal ends before it.
        """
        path = self._data_dir.mark
        if not path.exists() or path.stat().st_size < _TURN.size:
            path.write_bytes(_TURN.pack(self._turn))
        with path.open("r+b") as file:
            mark = mmap.mmap(file.fileno(), _TURN.size)
        (marked,) = _TURN.unpack(mark[:])
        if marked > self._turn:
            mark.close()
            raise DamagedJournal(
                f"{self._data_dir.journal} ends with turn {self._turn}, and {marked} were acknowledged: its "
                f"end is lost. {RESTORE} To go on from what is left, delete {path}"
            )
        return mark

    def _note_turn(self, turn: int) -> None:
        self._turn = turn
        assert self._mark is not None, "this journal is only to be read"
        self._mark[:] = _TURN.pack(turn)

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

    @contextlib.contextmanager
    def _turning(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is a turn without records. Raises AppendFailed."""
        with self._lock:
            turn = self._turn + 1
            try:
                with self._transaction() as database:
                    database.execute("UPDATE turns SET turn = ?", (turn,))
                    yield database
            except sqlite3.Error as error:
                raise _append_failed(error) from error
            self._note_turn(turn)

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
        return sorted(self._data_dir.snapshots.glob(f"{key}-*.snapshot"), key=_number_of)

    def _unreadable(self, error: sqlite3.Error) -> JournalError:
        return DamagedJournal(f"{self._data_dir.journal} cannot be read: {error}. {RESTORE}")


def _number_of(snapshot: Path) -> int:
    return int(snapshot.stem.partition("-")[2])


def _append_failed(error: sqlite3.Error) -> AppendFailed:
    return AppendFailed(f"the journal could not be written: {error}")


def _checksum(key: int, number: int, payload: bytes) -> bytes:
    digest = xxhash.xxh3_64(payload)
    digest.update(struct.pack("<QQ", key, number))
    return digest.digest()
