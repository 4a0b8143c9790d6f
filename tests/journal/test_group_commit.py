"""Group commit: what one turn of the loop has done is written at once, and told only then."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from blockyard.core.commands import ExpireLeases, RenewLease
from blockyard.core.errors import NotReady
from blockyard.core.ids import LeaseId
from blockyard.server.journal.command_codec import decode_batch, encode_command
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.group_commit import GroupCommit
from blockyard.server.journal.interface import PoolKey, Record
from blockyard.server.journal.line import Line
from blockyard.server.journal.sqlite_journal import SqliteJournal
from blockyard.server.journal.sync import Sync
from journal.stored import opened


def renewal(number: int) -> RenewLease:
    return RenewLease(lease_id=LeaseId(f"{number}"))


def unexpected(error: AppendFailed) -> None:
    raise AssertionError from error


async def do(commit: GroupCommit, line: Line, number: int) -> None:
    """One request: its command is applied, and it is told once that is durable."""
    commit.add(line, encode_command(renewal(number), number))
    await commit.settled()


@pytest.mark.parametrize("sync", Sync)
def test_all_that_was_done_is_written_in_order_and_in_few_records(tmp_path: Path, sync: Sync) -> None:
    async def run(journal: SqliteJournal) -> None:
        commit = GroupCommit.of(journal, on_failure=unexpected)
        lines = [Line(journal.create(name, b"")) for name in ("one", "two")]
        for begin in (0, 50):
            await asyncio.gather(*(do(commit, lines[n % 2], n) for n in range(begin, begin + 50)))

    with opened(tmp_path, sync=sync) as journal:
        asyncio.run(run(journal))
        for parity, stored in enumerate(journal.pools()):
            records = list(journal.read(stored.key, after=0))
            commands = [timed for record in records for timed in decode_batch(record.payload)]
            assert commands == [(n, renewal(n)) for n in range(parity, 100, 2)]
            assert records[-1].number == 50
            assert len(records) <= 5


@pytest.mark.parametrize("sync", Sync)
def test_nothing_is_told_before_it_is_durable(tmp_path: Path, sync: Sync) -> None:
    async def request(commit: GroupCommit, line: Line, journal: SqliteJournal, number: int) -> None:
        await asyncio.sleep(number % 3 / 1_000)
        commit.add(line, encode_command(renewal(number), 0))
        own = line.number
        await commit.settled()
        assert journal.last_number(line.key) >= own

    async def run(journal: SqliteJournal) -> None:
        commit = GroupCommit.of(journal, on_failure=unexpected)
        line = Line(journal.create("pool", b""))
        await asyncio.gather(*(request(commit, line, journal, number) for number in range(200)))

    with opened(tmp_path, sync=sync) as journal:
        asyncio.run(run(journal))


def test_a_reader_waits_for_what_it_may_have_seen(tmp_path: Path) -> None:
    async def run(journal: SqliteJournal) -> None:
        commit = GroupCommit.of(journal, on_failure=unexpected)
        line = Line(journal.create("pool", b""))
        await commit.settled()
        commit.add(line, encode_command(ExpireLeases(), 0))
        assert journal.last_number(line.key) == 0
        await commit.settled()
        assert journal.last_number(line.key) == 1

    with opened(tmp_path) as journal:
        asyncio.run(run(journal))


class FailsOnce(SqliteJournal):
    """Takes two appends, not the third, and all that come later."""

    num_appends = 0

    def append(self, batch: Sequence[Record]) -> None:
        self.num_appends += 1
        if self.num_appends == 3:
            raise AppendFailed("the disk is full")
        super().append(batch)


@pytest.mark.parametrize("sync", Sync)
def test_after_a_failed_append_nothing_is_told_or_written_any_more(tmp_path: Path, sync: Sync) -> None:
    failures: list[AppendFailed] = []

    async def run(journal: SqliteJournal) -> None:
        commit = GroupCommit.of(journal, on_failure=failures.append)
        line = Line(journal.create("pool", b""))
        for number in range(2):
            await do(commit, line, number)
        for number in range(2, 4):
            with pytest.raises(NotReady, match="not known"):
                await do(commit, line, number)
        with pytest.raises(NotReady):
            await commit.settled()
        assert journal.last_number(line.key) == 2

    with opened(tmp_path, sync=sync) as journal:
        journal.__class__ = FailsOnce
        asyncio.run(run(journal))
    assert [str(failure) for failure in failures] == ["the disk is full"]


@pytest.mark.parametrize("sync", Sync)
def test_what_a_dropped_pool_had_not_written_yet_is_not_written(tmp_path: Path, sync: Sync) -> None:
    async def run(journal: SqliteJournal) -> None:
        commit = GroupCommit.of(journal, on_failure=unexpected)
        lines = [Line(journal.create(name, b"")) for name in ("dropped", "kept")]
        for line in lines:
            commit.add(line, encode_command(renewal(1), 0))
        journal.drop(lines[0].key)
        commit.discard(lines[0])
        await commit.settled()

    with opened(tmp_path, sync=sync) as journal:
        asyncio.run(run(journal))
    with opened(tmp_path) as journal:
        assert journal.dropped() == []
        (kept,) = journal.pools()
        assert journal.last_number(kept.key) == 1


def test_whatever_goes_wrong_with_an_append_nobody_waits_for_ever() -> None:
    failures: list[AppendFailed] = []

    async def append(_: Sequence[Record]) -> None:
        raise ValueError("no answer that anybody knows")

    async def run() -> None:
        commit = GroupCommit(append, failures.append, is_slow=True)
        for number in range(2):
            with pytest.raises(NotReady):
                async with asyncio.timeout(30):
                    await do(commit, Line(PoolKey(1)), number)

    asyncio.run(run())
    assert len(failures) == 1
