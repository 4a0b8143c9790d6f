"""Keeping a journal short: snapshots by size and by age, after which the records before them go.

They are taken in a process of its own, one at a time, which replays what the server has written.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import structlog

from blockyard.server.journal.errors import AppendFailed, JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line

log = structlog.get_logger("blockyard.journal")

LOOK_EVERY_S = 0.5
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


class Snapshots(Protocol):
    """Where snapshots are kept, and what becomes superfluous by them."""

    def process(self, key: PoolKey) -> Sequence[str]:
        """The module that takes one of a pool, and its arguments; its output ends with its number."""
        ...

    async def tend(self, keys: AbstractSet[PoolKey]) -> None:
        """Do what is to be done now and then: there are these pools. Raises AppendFailed."""
        ...

    async def forget(self, key: PoolKey) -> None:
        """Forget what the latest snapshot of a pool has. Raises AppendFailed."""
        ...


class SnapshotKeeper:
    """Takes snapshots of the pools of ``lines`` and forgets what they make superfluous.

    Args:
        snapshots: Where they are kept.
        lines: Gives those of all pools, each time anew.
        rule: When.
        on_failure: Told of an append that failed.
        figures: What snapshots cost.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        lines: Callable[[], Iterable[Line]],
        rule: SnapshotRule,
        on_failure: Callable[[AppendFailed], object],
        figures: JournalFigures,
    ) -> None:
        self._snapshots = snapshots
        self._lines = lines
        self._rule = rule
        self._on_failure = on_failure
        self._figures = figures
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
        lines = list(self._lines())
        await self._snapshots.tend({line.key for line in lines})
        now_s = time.monotonic()
        due = [line for line in lines if self._is_due(line, now_s)]
        if due:
            line = max(due, key=lambda line: line.num_bytes)
            self._retry_s[line.key] = now_s + PAUSE_AFTER_FAILURE_S  # others go first, if it fails
            await self._take(line)
            del self._retry_s[line.key]

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
        await self._snapshots.forget(line.key)

    async def _run_process(self, key: PoolKey) -> int | None:
        """The number of the snapshot that was taken; None if the pool was dropped in the meantime.

        Raises:
            JournalError: None was taken.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", *self._snapshots.process(key)),
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
