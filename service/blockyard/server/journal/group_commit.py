"""Group commit: what one turn of the event loop has applied is appended at once, then its replies go out."""

import asyncio
import time
from collections.abc import Callable

import structlog

from blockyard.core.errors import NotReady
from blockyard.server.journal.command_codec import join_batch
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.interface import Journal, Record
from blockyard.server.journal.line import Line

log = structlog.get_logger("blockyard.journal")

RETRY_AFTER_MS = 1_000
"""By then a supervisor may have started the server again."""


class GroupCommit:
    """Appends to ``journal`` what was applied. Used on one event loop.

    Args:
        journal: Where to.
        on_failure: Called once, if an append fails: memory is ahead of the journal from then on.
        figures: What appends cost; None: nobody asks.

    Attributes:
        has_failed: Whether one has.
    """

    def __init__(
        self,
        journal: Journal,
        on_failure: Callable[[AppendFailed], None],
        figures: JournalFigures | None = None,
    ) -> None:
        self._journal = journal
        self._on_failure = on_failure
        self._figures = figures or JournalFigures()
        self._lines: list[Line] = []
        self._gathering: asyncio.Future[None] | None = None  # done once that batch is appended
        self._appending: asyncio.Future[None] | None = None  # likewise, of the one that a thread has
        self._flushing: asyncio.Task[None] | None = None
        self.has_failed = False

    def add(self, line: Line, entry: bytes) -> None:
        """A command was applied to the pool of ``line``; see `encode_command`."""
        line.number += 1
        if not line.waiting:
            self._lines.append(line)
        line.waiting.append(entry)
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.create_future()
            loop.call_soon(self._flush)

    def discard(self, line: Line) -> None:
        """The pool of ``line`` is dropped: what was not appended need not be."""
        if line.waiting:
            self._lines.remove(line)
            line.waiting = []

    @property
    def settling(self) -> asyncio.Future[None] | None:
        """What `settled` waits for; None: nothing."""
        return self._gathering or self._appending

    async def settled(self) -> None:
        """Wait until all that was added is durable: then what was read from pools may be told.

        Raises:
            NotReady: An append has failed; nothing may be told any more.
        """
        last = self.settling
        if last is not None:
            await asyncio.shield(last)
        self.check_sound()

    def check_sound(self) -> None:
        """Raise NotReady where an append has failed: what was done since may not be told."""
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
        if self._flushing is not None:
            return  # it goes on with this batch by itself
        if self._journal.waits_for_disk:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_in_thread())
            return
        appended, records, num_commands = self._take()
        try:
            if not self.has_failed:  # else what follows a lost batch would be behind a gap
                self._append(records, num_commands)
        except AppendFailed as error:
            self.fail(error)
        appended.set_result(None)

    async def _flush_in_thread(self) -> None:
        while self._gathering is not None:
            self._appending, records, num_commands = self._take()
            try:
                if not self.has_failed:
                    await asyncio.to_thread(self._append, records, num_commands)
            except AppendFailed as error:
                self.fail(error)
            self._appending.set_result(None)
        self._appending = self._flushing = None

    def _append(self, records: list[Record], num_commands: int) -> None:
        """Append one batch, and count it. Raises AppendFailed."""
        if not records:
            return  # all of their pools were dropped meanwhile
        began_s = time.perf_counter()
        self._journal.append(records)
        duration_s = time.perf_counter() - began_s
        self._figures.appended(duration_s, num_commands, sum([len(record.payload) for record in records]))

    def _take(self) -> tuple[asyncio.Future[None], list[Record], int]:
        """Whom to tell of the gathered batch, the batch as records, and how many commands that is."""
        assert self._gathering is not None, "a batch has somebody to tell"
        appended, lines = self._gathering, self._lines
        self._gathering, self._lines = None, []
        records, num_commands = [], 0
        for line in lines:
            record = Record(key=line.key, number=line.number, payload=join_batch(line.waiting))
            num_commands += len(line.waiting)
            line.waiting = []
            line.num_bytes += len(record.payload)
            records.append(record)
        return appended, records, num_commands


def _failed() -> NotReady:
    return NotReady(
        "the journal could not be written, and the server stops: whether this was done is not known",
        {"retry_after_ms": RETRY_AFTER_MS},
    )
