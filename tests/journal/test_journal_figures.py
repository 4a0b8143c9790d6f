"""What is told of the journal: appends as they were, and snapshots that were taken or not."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from blockyard.core.commands import ExpireLeases
from blockyard.server.journal.command_codec import encode_command
from blockyard.server.journal.directory_snapshots import DirectorySnapshots
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.group_commit import GroupCommit
from blockyard.server.journal.line import Line
from blockyard.server.journal.snapshots import SnapshotKeeper, SnapshotRule
from blockyard.server.journal.sync import Sync
from journal.stored import opened

PREFIX = "blockyard_journal_"
ALWAYS = SnapshotRule(max_commands=1, max_bytes=1, max_age_s=0)


def shown(figures: JournalFigures, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(figures)
    return registry.get_sample_value(PREFIX + name, labels)


def unexpected(error: Exception) -> None:
    raise AssertionError from error


@pytest.mark.parametrize("sync", Sync)
def test_commands_of_one_turn_are_one_append(tmp_path: Path, sync: Sync) -> None:
    figures = JournalFigures()
    entry = encode_command(ExpireLeases(), 0)

    async def run(commit: GroupCommit, lines: list[Line]) -> None:
        for num_commands in (1, 3):
            for _ in range(num_commands):
                for line in lines:
                    commit.add(line, entry)
            await commit.settled()

    with opened(tmp_path, sync=sync) as journal:
        commit = GroupCommit.of(journal, on_failure=unexpected, figures=figures)
        lines = [Line(journal.create(name, b"")) for name in ("one", "two")]
        asyncio.run(run(commit, lines))
        assert shown(figures, "appended_bytes_total") == sum(line.num_bytes for line in lines)
    assert shown(figures, "append_duration_seconds_count") == 2
    assert shown(figures, "append_commands_sum") == 2 * (1 + 3)
    assert shown(figures, "append_commands_bucket", le="2.0") == 1


def test_a_snapshot_that_fails_is_counted_and_leaves_the_age_as_it_was(tmp_path: Path) -> None:
    figures = JournalFigures()
    with opened(tmp_path) as journal:
        line = Line(journal.create("pool", b"of no version"), number=1)
        before_s = line.snapshot_s
        keeper = SnapshotKeeper(
            DirectorySnapshots(journal, tmp_path), lambda: [line], ALWAYS, unexpected, figures
        )
        with pytest.raises(JournalError, match="no snapshot was taken"):
            asyncio.run(keeper._look())
        assert (line.snapshot_s, line.num_new_commands) == (before_s, 1)
    assert shown(figures, "snapshots_total", outcome="failed") == 1
    assert shown(figures, "snapshots_total", outcome="taken") == 0
