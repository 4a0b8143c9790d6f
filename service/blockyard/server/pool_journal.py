"""What the pools write down, if they write anything down."""

import asyncio
from collections.abc import Callable

from blockyard.core.config import PoolConfig
from blockyard.core.errors import NotReady
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.group_commit import GroupCommit
from blockyard.server.journal.interface import Journal
from blockyard.server.journal.line import Line
from blockyard.server.journal.pool_state import encode_definition


class PoolJournal:
    """Writes to ``journal``; None: to nothing at all.

    Args:
        journal: Of all pools.
        on_failure: Called once, if it cannot be written.
        figures: What it costs.
    """

    def __init__(
        self,
        journal: Journal | None,
        on_failure: Callable[[AppendFailed], None],
        figures: JournalFigures,
    ) -> None:
        self._journal = journal
        self._commit = None if journal is None else GroupCommit(journal, on_failure, figures)

    @property
    def settling(self) -> asyncio.Future[None] | None:
        """What `settled` waits for; None: nothing."""
        return None if self._commit is None else self._commit.settling

    def check_sound(self) -> None:
        """Raise NotReady where it could not be written, and so nothing may be told any more."""
        if self._commit is not None:
            self._commit.check_sound()

    async def settled(self) -> None:
        """Wait until all that was applied is durable: then it may be told.

        Raises:
            NotReady: It could not be written down; nothing may be told any more.
        """
        if self._commit is not None:
            await self._commit.settled()

    def add(self, line: Line, entry: bytes) -> None:
        """A command was applied to the pool of ``line``: see `encode_command`."""
        assert self._commit is not None, "a line belongs to a journal"
        self._commit.add(line, entry)

    def create(self, name: str, config: PoolConfig, request: bytes | None) -> Line | None:
        """Write down a pool that is being made; its line, where there is a journal.

        Raises:
            NotReady: It could not be written down.
        """
        if self._journal is None:
            return None
        try:
            return Line(self._journal.create(name, encode_definition(config, request)))
        except AppendFailed as error:
            raise self.fail(error) from error

    def drop(self, line: Line) -> None:
        """Write down that a pool is deleted. Raises NotReady: it could not be written down."""
        assert self._journal is not None, "a line belongs to a journal"
        assert self._commit is not None, "likewise"
        try:
            self._journal.drop(line.key)
        except AppendFailed as error:
            raise self.fail(error) from error
        self._commit.discard(line)

    def fail(self, error: AppendFailed) -> NotReady:
        """The journal could not be written: the server stops, and this is what it says until then."""
        assert self._commit is not None, "what fails is there"
        return self._commit.fail(error)
