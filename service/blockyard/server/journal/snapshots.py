"""Keeping a journal short: snapshots by size and by age, after which the records before them go.

They are taken in a process of its own, one at a time; see `take_snapshot`. Records go a few at a time, so
that no call waits for long.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from blockyard.server.journal.errors import AppendFailed, JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line
from blockyard.server.journal.sqlite_journal import SqliteJournal

log = structlog.get_logger("blockyard.journal")

LOOK_EVERY_S = 0.5
PAUSE_S = 0.002
"""Between two lots of records that go."""
PAUSE_AFTER_FAILURE_S = 30.0
"""Of the pool whose snapshot failed."""
PAUSE_AFTER_MISTAKE_S = 2.0
"""Of all."""
MAX_SNAPSHOT_S = 900.0
"""A process that takes longer hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRule:
    """When a pool is due, if it was given any command since its last snapshot.

    Attributes:
        max_commands: Since then.
        max_bytes: Of records since then.
        max_age_s: Since then, or since the start.
    """

    max_commands: int
    max_bytes: int
    max_age_s: float


class SnapshotKeeper:
    """Takes snapshots of the pools of ``lines`` and forgets what they make superfluous.

    Args:
        journal: The server's own.
        data_dir: Where it is.
        lines: Gives those of all pools, each time anew.
        rule: When.
        on_failure: Told of an append that failed.
        figures: What snapshots cost.
    """

    def __init__(
        self,
        journal: SqliteJournal,
        data_dir: Path,
        lines: Callable[[], Iterable[Line]],
        rule: SnapshotRule,
        on_failure: Callable[[AppendFailed], object],
        figures: JournalFigures,
    ) -> None:
        self._journal = journal
        self._data_dir = data_dir
        self._lines = lines
        self._rule = rule
        self._on_failure = on_failure
        self._figures = figures
        self._known: set[PoolKey] = set()
        self._num_drops = -1  # not looked yet
        self._retry_s: dict[PoolKey, float] = {}

    async def run(self) -> None:
        """Look for what is due until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._look()
            except AppendFailed as error:
                self._on_failure(error)
                return
            except Exception:  # whatever it is: without snapshots the journal grows and grows
                log.exception("a snapshot failed, and is tried again")
                await asyncio.sleep(PAUSE_AFTER_MISTAKE_S)

    async def _look(self) -> None:
        self._journal.fold_if_large()
        lines = list(self._lines())
        await self._forget_superfluous({line.key for line in lines})
        now_s = time.monotonic()
        due = [line for line in lines if self._is_due(line, now_s)]
        if due:
            line = max(due, key=lambda line: line.num_bytes)
            self._retry_s[line.key] = now_s + PAUSE_AFTER_FAILURE_S  # others go first, if it fails
            await self._take(line)
            del self._retry_s[line.key]

    async def _forget_superfluous(self, keys: set[PoolKey]) -> None:
        """Of pools dropped since the last look or before the start; and what earlier snapshots have."""
        num_drops = self._journal.num_drops
        dropped: list[PoolKey] = []
        if num_drops != self._num_drops:
            dropped = await asyncio.to_thread(self._journal.dropped)  # it waits for an append under way
        for key in {*dropped, *(keys - self._known)}:
            await self._truncate(key)
        self._num_drops = num_drops
        self._known = keys

    def _is_due(self, line: Line, now_s: float) -> bool:
        if now_s < self._retry_s.get(line.key, now_s):
            return False
        num_commands = line.num_new_commands
        age_s = now_s - line.snapshot_s
        rule = self._rule
        return num_commands > 0 and (
            num_commands >= rule.max_commands or line.num_bytes >= rule.max_bytes or age_s >= rule.max_age_s
        )

    async def _take(self, line: Line) -> None:
        num_bytes = line.num_bytes
        began_s = time.monotonic()
        try:
            number = await self._run_process(line.key)
        except Exception:
            self._figures.snapshot_failed()
            raise
        line.snapshot_s = time.monotonic()
        if number is None:
            return
        self._figures.snapshot_taken(line.snapshot_s - began_s)
        line.snapshot_number = number
        line.num_bytes -= num_bytes
        log.info("snapshot", key=line.key, number=number)
        await self._truncate(line.key)

    async def _run_process(self, key: PoolKey) -> int | None:
        """The number of the snapshot that was taken; None if the pool was dropped in the meantime.

        Raises:
            JournalError: None was taken.
        """
        module = "blockyard.server.journal.take_snapshot"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module, str(self._data_dir.absolute()), str(key), str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(MAX_SNAPSHOT_S):
                output, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            last_line = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise JournalError(f"no snapshot was taken: {last_line}")
        number = output.split()[-1:]
        return int(number[0]) if number else None

    async def _truncate(self, key: PoolKey) -> None:
        while self._journal.truncate(key):  # noqa: ASYNC110 - a pause for others, not for an event
            await asyncio.sleep(PAUSE_S)
