"""Group commit: what one turn of the event loop has applied is appended at once, then its replies go out."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from blockyard.core.commands import Command
from blockyard.core.errors import NotReady
from blockyard.server.journal.command_codec import Timed, encode_batch
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.interface import Journal, PoolKey, Record

log = structlog.get_logger("blockyard.journal")

RETRY_AFTER_MS = 1_000
"""By then a supervisor may have started the server again."""


@dataclass(slots=True, eq=False)
class Line:
    """One pool's line of records: how far it has come.

    Attributes:
        number: Of the last command that was applied.
        num_bytes: Appended since the last snapshot.
        snapshot_number: Up to where the last snapshot goes.
        waiting: Commands that were applied and are not appended.
    """

    key: PoolKey
    number: int = 0
    num_bytes: int = 0
    snapshot_number: int = 0
    waiting: list[Timed] = field(default_factory=list)


class GroupCommit:
    """Appends to ``journal`` what was applied. Used on one event loop.

    Args:
        journal: Where to.
        on_failure: Called once, if an append fails: memory is ahead of the journal from then on.

    Attributes:
        has_failed: Whether one has.
    """

    def __init__(self, journal: Journal, on_failure: Callable[[AppendFailed], None]) -> None:
        self._journal = journal
        self._on_failure = on_failure
        self._lines: list[Line] = []
        self._next: asyncio.Future[None] | None = None  # of the batch that is being gathered
        self._written: asyncio.Future[None] | None = None  # of the one that a thread appends
        self._thread: asyncio.Task[None] | None = None
        self.has_failed = False

    def add(self, line: Line, command: Command, now_ms: int) -> None:
        """``command`` was applied at ``now_ms`` to the pool of ``line``."""
        line.number += 1
        if not line.waiting:
            self._lines.append(line)
        line.waiting.append((now_ms, command))
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_soon(self._flush)

    async def settled(self) -> None:
        """Wait until all that was added is durable: then what was read from pools may be told.

        Raises:
            NotReady: An append has failed; nothing may be told any more.
        """
        last = self._next or self._written
        if last is not None:
            await asyncio.shield(last)
        if self.has_failed:
            raise _failed()

    def fail(self, error: AppendFailed) -> NotReady:
        """The journal could not be written: nothing may be acknowledged any more; what to say instead."""
        if not self.has_failed:
            self.has_failed = True
            log.critical("the journal could not be written: the server stops", error=str(error))
            self._on_failure(error)
        return _failed()

    def _flush(self) -> None:
        """Append what was gathered: at once, or in a thread while the next batch is being gathered."""
        if self._thread is not None:
            return  # it goes on with this batch by itself
        if self._journal.waits_for_disk:
            self._thread = asyncio.get_running_loop().create_task(self._flush_in_thread())
            return
        written, records = self._take()
        try:
            self._journal.append(records)
        except AppendFailed as error:
            self.fail(error)
        written.set_result(None)

    async def _flush_in_thread(self) -> None:
        while self._next is not None:
            self._written, records = self._take()
            try:
                if not self.has_failed:
                    await asyncio.to_thread(self._journal.append, records)
            except AppendFailed as error:
                self.fail(error)
            self._written.set_result(None)
        self._written = self._thread = None

    def _take(self) -> tuple[asyncio.Future[None], list[Record]]:
        """The gathered batch as records, and whom to tell of it."""
        assert self._next is not None, "a batch has somebody to tell"
        written, lines = self._next, self._lines
        self._next, self._lines = None, []
        records = []
        for line in lines:
            record = Record(key=line.key, number=line.number, payload=encode_batch(line.waiting))
            line.waiting = []
            line.num_bytes += len(record.payload)
            records.append(record)
        return written, records


def _failed() -> NotReady:
    return NotReady(
        "the journal could not be written, and the server stops: whether this was done is not known",
        {"retry_after_ms": RETRY_AFTER_MS},
    )
