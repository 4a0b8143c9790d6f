"""Group commit: what one turn of the event loop has applied is appended at once, then its replies go out."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

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

Append: TypeAlias = Callable[[Sequence[Record]], Awaitable[None] | None]
"""Writes records: by the time that it returns, or that what it returns was awaited. Raises AppendFailed."""


def journal_failed() -> NotReady:
    """What is said once a journal of a server's own could not be written."""
    return NotReady(
        "the journal could not be written, and the server stops: whether this was done is not known",
        {"retry_after_ms": RETRY_AFTER_MS},
    )


class GroupCommit:
    """Appends what was applied. Used on one event loop.

    Args:
        append: Writes one batch.
        is_slow: Whether that has to be awaited: then the next batch is gathered meanwhile.
        on_failure: Called once, if an append fails: memory is ahead of the journal from then on.
        refusal: Made for each who is not told what was done.
        figures: What appends cost; None: nobody asks.

    Attributes:
        has_failed: Whether one has.
    """

    def __init__(
        self,
        append: Append,
        on_failure: Callable[[AppendFailed], None],
        figures: JournalFigures | None = None,
        *,
        is_slow: bool,
        refusal: Callable[[], NotReady] = journal_failed,
    ) -> None:
        self._append = append
        self._is_slow = is_slow
        self._on_failure = on_failure
        self._refusal = refusal
        self._figures = figures or JournalFigures()
        self._lines: list[Line] = []
        self._gathering: asyncio.Future[None] | None = None  # done once that batch is appended
        self._appending: asyncio.Future[None] | None = None  # likewise, of the one that is being appended
        self._flushing: asyncio.Task[None] | None = None
        self._is_withdrawn = False
        self.has_failed = False

    @classmethod
    def of(
        cls,
        journal: Journal,
        on_failure: Callable[[AppendFailed], None],
        figures: JournalFigures | None = None,
    ) -> "GroupCommit":
        """One that appends to ``journal``, in a thread where that takes long."""
        is_slow = journal.waits_for_disk

        def append_in_thread(batch: Sequence[Record]) -> Awaitable[None]:
            return asyncio.to_thread(journal.append, batch)

        return cls(append_in_thread if is_slow else journal.append, on_failure, figures, is_slow=is_slow)

    @property
    def headers(self) -> dict[str, str]:
        """What every answer about the pools says beside itself: nothing."""
        return {}

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
            NotReady: An append has failed, or nobody waits for it any more; nothing may be told.
        """
        last = self.settling
        if last is not None:
            await asyncio.shield(last)
        self.check_sound()

    def check_sound(self) -> None:
        """Raise NotReady where what was done may not be told: an append has failed, or goes on unwaited."""
        if self.has_failed or self._is_withdrawn:
            raise self._refusal()

    def withdraw(self) -> None:
        """Tell nobody anything any more, not those who wait either; appending goes on."""
        self._is_withdrawn = True
        for waited in (self._gathering, self._appending):
            if waited is not None and not waited.done():
                waited.set_result(None)

    def fail(self, error: AppendFailed) -> NotReady:
        """The journal could not be written: nothing may be acknowledged any more; what to say instead."""
        if not self.has_failed:
            self.has_failed = True
            log.critical("the journal could not be written", error=str(error))
            self._on_failure(error)
        return self._refusal()

    def _flush(self) -> None:
        """Append what was gathered: at once, or while the next batch is being gathered."""
        if self._flushing is not None:
            return  # it goes on with this batch by itself
        if self._is_slow:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_in_turns())
            return
        appended, records, num_commands = self._take()
        try:
            if records and not self.has_failed:  # else what follows a lost batch would be behind a gap
                began_s = time.perf_counter()
                self._append(records)
                self._count(began_s, records, num_commands)
        except AppendFailed as error:
            self.fail(error)
        appended.set_result(None)

    async def _flush_in_turns(self) -> None:
        while self._gathering is not None:
            self._appending, records, num_commands = self._take()
            try:
                if records and not self.has_failed:
                    began_s = time.perf_counter()
                    writing = self._append(records)
                    assert writing is not None, "a slow append is awaited"
                    await writing
                    self._count(began_s, records, num_commands)
            except AppendFailed as error:
                self.fail(error)
            except Exception as error:  # whatever it is: else all that comes would wait for ever
                log.exception("a batch could not be appended")
                self.fail(AppendFailed(repr(error)))
            if not self._appending.done():
                self._appending.set_result(None)
        self._appending = self._flushing = None

    def _count(self, began_s: float, records: list[Record], num_commands: int) -> None:
        """One batch was appended. There is none where all of its pools were dropped meanwhile."""
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
