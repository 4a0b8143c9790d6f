"""A journal in a data directory: what is written is read again, and what is damaged is never passed over."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.errors import (
    AppendFailed,
    DamagedJournal,
    DataDirInUse,
    JournalError,
    NewerJournal,
)
from blockyard.server.journal.interface import Record, Snapshot
from blockyard.server.journal.sqlite_journal import JOURNAL_FORMAT, ROWS_A_TRIM, SqliteJournal
from blockyard.server.journal.sync import Sync
from journal.stored import as_after_a_kill, flip, opened, record
from server_process import running_server


def change(path: Path, statement: str) -> None:
    """Do what nobody should with the database."""
    with closing(sqlite3.connect(path / "journal.sqlite", isolation_level=None)) as database:
        database.execute(statement)


def filled(path: Path, num_records: int = 20) -> None:
    """A journal of one pool with records of a command each."""
    with opened(path) as journal:
        key = journal.create("pool", b"definition")
        for number in range(1, num_records + 1):
            journal.append([record(key, number, b"x" * 300)])


def test_what_is_appended_is_read_in_order_from_any_number_on(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        one, two = journal.create("one", b"1"), journal.create("two", b"2")
        journal.append([record(one, 3, b"a"), record(two, 1, b"b")])
        journal.append([record(one, 4, b"c")])
        journal.append([record(one, 9, b"d")])
        assert [(each.number, each.payload) for each in journal.read(one, after=3)] == [(4, b"c"), (9, b"d")]
        assert list(journal.read(two, after=0)) == [Record(key=two, number=1, payload=b"b")]
        assert (journal.last_number(one), journal.last_number(two)) == (9, 1)


def test_all_is_there_again_after_a_clean_end_and_after_a_kill(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as journal:
        key = journal.create("pool", b"definition")
        journal.append([record(key, 1)])
        journal.save_snapshot(key, Snapshot(number=1, state=b"state"))
        journal.append([record(key, 2)])
        killed = as_after_a_kill(tmp_path / "live", tmp_path / "killed")
    for path in (tmp_path / "live", killed):
        with opened(path) as journal:
            ((stored),) = journal.pools()
            assert (stored.key, stored.name, stored.definition) == (key, "pool", b"definition")
            assert journal.snapshot(key) == Snapshot(number=1, state=b"state")
            assert [each.number for each in journal.read(key, after=1)] == [2]


def test_a_pool_made_anew_has_none_of_the_records_of_the_one_before(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        first = journal.create("pool", b"1")
        journal.append([record(first, 1)])
        journal.save_snapshot(first, Snapshot(number=1, state=b"state"))
        journal.drop(first)
        second = journal.create("pool", b"2")
        assert second > first
        assert list(journal.read(second, after=0)) == []
        assert journal.snapshot(second) is None
        assert journal.dropped() == [first]
        assert not journal.truncate(first)
        assert journal.dropped() == []


def test_only_what_a_snapshot_has_is_forgotten_a_few_records_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.append([record(key, number) for number in range(1, ROWS_A_TRIM + 31)])
        assert not journal.truncate(key)
        assert journal.last_number(key) == ROWS_A_TRIM + 30
        journal.save_snapshot(key, Snapshot(number=ROWS_A_TRIM + 10, state=b"state"))
        assert journal.truncate(key)
        assert not journal.truncate(key)
        left = [each.number for each in journal.read(key, after=0)]
        assert left == list(range(ROWS_A_TRIM + 11, ROWS_A_TRIM + 31))


def test_a_later_snapshot_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        for number in (9, 10):
            journal.save_snapshot(key, Snapshot(number=number, state=b"%d" % number))
        assert journal.snapshot(key) == Snapshot(number=10, state=b"10")
        assert len(list((tmp_path / "snapshots").iterdir())) == 1


def test_a_journal_may_be_read_beside_the_one_that_writes(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.append([record(key, 1)])
        with closing(SqliteJournal(DataDir(tmp_path), read_only=True)) as reader:
            journal.append([record(key, 2)])
            assert [each.number for each in reader.read(key, after=0)] == [1, 2]


def test_full_sync_waits_for_the_disk(tmp_path: Path) -> None:
    for sync, level in ((Sync.PROCESS, 1), (Sync.FULL, 2)):
        with opened(tmp_path, sync=sync) as journal:
            assert journal._database.execute("PRAGMA synchronous").fetchone() == (level,)
            assert journal.waits_for_disk is (sync is Sync.FULL)


def test_the_log_is_folded_into_the_database_beside_the_one_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockyard.server.journal.sqlite_journal.LOG_BYTES", 10_000)
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        for number in range(1, 101):
            journal.append([record(key, number, b"x" * 1_000)])
        log = tmp_path / "journal.sqlite-wal"
        assert log.stat().st_size > 100_000
        journal.fold_if_large()
        assert journal._folding is not None
        journal._folding.join()
        assert log.stat().st_size == 0
        journal.append([record(key, 101)])
        assert [each.number for each in journal.read(key, after=0)] == list(range(1, 102))


def test_folding_does_not_wait_for_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockyard.server.journal.sqlite_journal.LOG_BYTES", 10_000)
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM records").fetchone()
            for number in range(1, 101):
                journal.append([record(key, number, b"x" * 1_000)])
            journal.fold_if_large()
            assert journal._folding is not None
            journal._folding.join(8)
            assert not journal._folding.is_alive()
            journal.append([record(key, 101)])
        journal.fold_if_large()
        journal._folding.join()
        assert (tmp_path / "journal.sqlite-wal").stat().st_size == 0


def test_the_log_is_folded_however_much_is_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockyard.server.journal.sqlite_journal.LOG_BYTES", 1_000_000)
    log = tmp_path / "journal.sqlite-wal"
    with opened(tmp_path, sync=Sync.FULL) as journal:
        key = journal.create("pool", b"definition")
        largest = 0
        for number in range(1, 1_001):
            journal.append([record(key, number, b"x" * 20_000)])
            journal.fold_if_large()
            largest = max(largest, log.stat().st_size)
    assert largest < 15_000_000  # of twenty


def test_after_a_write_that_failed_nothing_more_is_written(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        with pytest.raises(AppendFailed):
            journal.append([record(key, 2**64)])
        for write in (
            lambda: journal.append([record(key, 1)]),
            lambda: journal.drop(key),
            lambda: journal.create("another", b""),
        ):
            with pytest.raises(AppendFailed, match="before"):
                write()
    with opened(tmp_path) as journal:
        journal.check()
        assert [each.name for each in journal.pools()] == ["pool"]


def test_an_empty_batch_is_no_append(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.create("pool", b"definition")
        journal.append([])
    with opened(tmp_path) as journal:
        assert journal._turn == 1


def test_records_of_a_dropped_pool_may_be_the_last_that_was_written(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.drop(key)
        journal.append([record(key, 1)])
    with opened(tmp_path) as journal:
        journal.check()
        assert journal.dropped() == [key]


def test_what_is_there_is_for_its_owner_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with running_server("--data-dir", str(tmp_path)):
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.is_file()}
    assert modes
    assert {mode & 0o077 for mode in modes.values()} == {0}


def test_files_that_are_not_ours_are_passed_over(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("old-backup.snapshot", "1-2.snapshot.bak", "notes.txt"):
        (tmp_path / "snapshots" / name).touch()
    with opened(tmp_path) as journal:
        (pool,) = journal.pools()
        assert journal.snapshot(pool.key) is None
        assert journal.dropped() == []


# One owner


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    first.make()
    first.lock()
    with pytest.raises(DataDirInUse, match="--volatile"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="choose another with --data-dir"):
        DataDir(tmp_path / "file" / "data").make()


# Damage


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET payload = x'00' WHERE position = (SELECT max(position) - 3 FROM records)",
        "UPDATE records SET checksum = x'00' WHERE position = (SELECT max(position) FROM records)",
        "UPDATE records SET position = position + 1000 WHERE position = (SELECT max(position) FROM records)",
    ],
)
def test_a_changed_record_is_found(tmp_path: Path, statement: str) -> None:
    filled(tmp_path)
    change(tmp_path, statement)
    with opened(tmp_path) as journal:
        (pool,) = journal.pools()
        with pytest.raises(DamagedJournal, match="not as it was written"):
            list(journal.read(pool.key, after=0))


@pytest.mark.parametrize("position", ["128 * (1 << 40) + 5", "2 * (1 << 40) + 20", "(1 << 40) + 1000"])
def test_a_record_that_is_not_in_its_place_is_found(tmp_path: Path, position: str) -> None:
    with opened(tmp_path) as journal:
        for name in ("one", "two"):
            key = journal.create(name, b"definition")
            journal.append([record(key, number) for number in range(1, 11)])
    change(tmp_path, f"UPDATE records SET position = {position} WHERE position = (1 << 40) + 10")  # noqa: S608
    with pytest.raises(DamagedJournal), opened(tmp_path) as journal:
        journal.check()


def test_a_mark_that_is_cut_off_is_found(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "journal.mark").write_bytes(b"\x01")
    with pytest.raises(DamagedJournal, match=r"journal\.mark is not as it was written"), opened(tmp_path):
        pass


def test_a_locked_database_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockyard.server.journal.sqlite_journal.BUSY_S", 0.01)
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JournalError, match="Nothing says that it is damaged") as caught, opened(tmp_path):
            pass
    assert not isinstance(caught.value, DamagedJournal)


def test_a_changed_definition_is_found(tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, "UPDATE pools SET definition = x'00'")
    with opened(tmp_path) as journal, pytest.raises(DamagedJournal, match="not as it was written"):
        journal.pools()


def test_a_lost_end_stops_the_start_and_says_how_to_go_on(tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, "DELETE FROM records WHERE position >= (SELECT max(position) - 1 FROM records)")
    with pytest.raises(DamagedJournal, match=r"append 19, and 21 were .*journal\.mark"), opened(tmp_path):
        pass
    (tmp_path / "journal.mark").unlink()
    with opened(tmp_path) as journal:
        (pool,) = journal.pools()
        assert journal.last_number(pool.key) == 18


def test_a_damaged_log_stops_the_start_wherever_it_is_hit(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as journal:
        key = journal.create("pool", b"definition")
        for number in range(1, 40):
            journal.append([record(key, number, b"x" * 300)])
        size = (tmp_path / "live" / "journal.sqlite-wal").stat().st_size
        copies = [
            as_after_a_kill(tmp_path / "live", tmp_path / f"copy-{position}")
            for position in range(40, size, size // 25)
        ]
    num_refused = 0
    for copy in copies:
        flip(copy / "journal.sqlite-wal", int(copy.name.removeprefix("copy-")))
        try:
            with opened(copy) as journal:
                (pool,) = journal.pools()
                numbers = [each.number for each in journal.read(pool.key, after=0)]
            assert numbers == list(range(1, 40))  # a byte that nobody reads
        except DamagedJournal:
            num_refused += 1
    assert num_refused > len(copies) // 2


def test_a_damaged_database_stops_the_start(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"\x00" * 5_000 + path.read_bytes()[5_000:])
    with pytest.raises(DamagedJournal, match="cannot be read"), opened(tmp_path):
        pass


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        database.execute("CREATE TABLE pools (name TEXT)")
    with pytest.raises(DamagedJournal, match="no journal of blockyard's"), opened(tmp_path):
        pass


def test_a_journal_that_is_gone_is_missed(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "journal.sqlite").unlink()
    with pytest.raises(DamagedJournal, match="though there was one"), opened(tmp_path):
        pass


def test_a_start_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "journal.new").write_bytes(b"half a database")
    filled(tmp_path)
    with opened(tmp_path) as journal:
        assert len(journal.pools()) == 1


@pytest.mark.parametrize("position", [0, 5, 9, 13, 21, 30, -1])
def test_a_snapshot_with_a_changed_byte_is_found(tmp_path: Path, position: int) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.save_snapshot(key, Snapshot(number=7, state=b"state"))
        (path,) = (tmp_path / "snapshots").iterdir()
        flip(path, position)
        with pytest.raises(DamagedJournal, match="Restore the data directory"):
            journal.snapshot(key)


def test_a_snapshot_that_is_cut_off_is_found(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.save_snapshot(key, Snapshot(number=7, state=b"state"))
        (path,) = (tmp_path / "snapshots").iterdir()
        for length in (0, 10, 50):
            path.write_bytes(path.read_bytes()[:length])
            with pytest.raises(DamagedJournal):
                journal.snapshot(key)


def test_a_snapshot_that_is_missing_is_missed(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.append([record(key, number) for number in range(1, 10)])
        journal.save_snapshot(key, Snapshot(number=9, state=b"state"))
        journal.truncate(key)
        (path,) = (tmp_path / "snapshots").iterdir()
        path.unlink()
        with pytest.raises(DamagedJournal, match="a snapshot is missing"):
            journal.snapshot(key)


def test_a_later_version_of_the_journal_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, f"PRAGMA user_version = {JOURNAL_FORMAT + 1}")
    with pytest.raises(NewerJournal, match="start the version that wrote it"), opened(tmp_path):
        pass


def test_a_later_version_of_a_snapshot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        monkeypatch.setattr("blockyard.server.journal.snapshot_file.SNAPSHOT_FILE_FORMAT", 2)
        journal.save_snapshot(key, Snapshot(number=7, state=b"state"))
        monkeypatch.undo()
        with pytest.raises(NewerJournal, match="format 2"):
            journal.snapshot(key)


def test_a_snapshot_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        key = journal.create("pool", b"definition")
        journal.save_snapshot(key, Snapshot(number=7, state=b"state"))
        (tmp_path / "snapshots" / f"{key}-8.snapshot").mkdir()
        with pytest.raises(AppendFailed):
            journal.save_snapshot(key, Snapshot(number=8, state=b"state"))
        (tmp_path / "snapshots" / f"{key}-8.snapshot").rmdir()
        assert journal.snapshot(key) == Snapshot(number=7, state=b"state")
        assert len(list((tmp_path / "snapshots").iterdir())) == 1
