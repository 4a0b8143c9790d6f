"""What the pools write down, wherever they write it: each pool by its name, or nothing at all.

An answer may be sent once the commits of all that it tells of are settled. Of which pools it tells is known
by its path: see `told_by`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from blockyard.core.config import PoolConfig
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.group_commit import GroupCommit
from blockyard.server.journal.interface import Journal
from blockyard.server.journal.line import Line
from blockyard.server.journal.pool_state import encode_definition

ALL_POOLS = "*"
"""Where a pool's name would stand: something tells of all of them."""

NO_POOL = ""
"""Likewise: it tells of none, or of nothing that has to be durable."""

_POOLS = "/v1/pools"
_OF_ALL = frozenset((_POOLS, "/v1/watch"))


def told_by(path: str) -> str:
    """The name of the pool that a request to ``path`` is told of; `ALL_POOLS`, or `NO_POOL`."""
    if path in _OF_ALL:
        return ALL_POOLS
    if path.startswith(f"{_POOLS}/"):
        return path[len(_POOLS) + 1 :].partition("/")[0]
    return NO_POOL


class Commit(Protocol):
    """What was done to some pools, and whether it may be told."""

    @property
    def headers(self) -> dict[str, str]:
        """What every answer about them says beside itself."""
        ...

    @property
    def settling(self) -> asyncio.Future[None] | None:
        """What `settled` waits for; None: nothing."""
        ...

    async def settled(self) -> None:
        """Wait until all that was applied is durable: then it may be told.

        Raises:
            NotReady: It could not be written down; nothing may be told any more.
        """
        ...

    def check_sound(self) -> None:
        """Raise NotReady where it could not be written, and so nothing may be told any more."""
        ...


class PoolJournal(Protocol):
    """Where a server's pools are written down."""

    def commit(self, pool: str) -> Commit:
        """The commit of the pool of this name, or of `ALL_POOLS`; one that waits for nothing, of others."""
        ...

    def add(self, line: Line, entry: bytes) -> None:
        """A command was applied to the pool of ``line``: see `encode_command`."""
        ...

    async def create(self, name: str, config: PoolConfig, request: bytes | None) -> Line | None:
        """Write down a pool that is being made; its line, where there is a journal.

        Raises:
            NotReady: It could not be written down.
        """
        ...

    async def drop(self, name: str, line: Line) -> None:
        """Write down that a pool is deleted. Raises NotReady: it could not be written down."""
        ...


class NothingToSettle:
    """The commit of what is written nowhere."""

    headers: dict[str, str] = {}  # noqa: RUF012 - nobody adds to it
    settling = None

    async def settled(self) -> None:
        """See `Commit.settled`."""

    def check_sound(self) -> None:
        """See `Commit.check_sound`."""


class VolatileJournal:
    """Writes nothing down."""

    def __init__(self) -> None:
        self._commit = NothingToSettle()

    def commit(self, _pool: str) -> Commit:
        """See `PoolJournal.commit`."""
        return self._commit

    def add(self, line: Line, entry: bytes) -> None:
        """Never called: no pool has a line."""
        raise NotImplementedError

    async def create(self, _name: str, _config: PoolConfig, _request: bytes | None) -> None:
        """See `PoolJournal.create`."""

    async def drop(self, name: str, line: Line) -> None:
        """Never called either."""
        raise NotImplementedError


class LocalJournal:
    """Writes all pools to one journal.

    Args:
        journal: Of all pools.
        on_failure: Called once, if it cannot be written.
        figures: What it costs.
    """

    def __init__(
        self,
        journal: Journal,
        on_failure: Callable[[AppendFailed], None],
        figures: JournalFigures,
    ) -> None:
        self._journal = journal
        self._commit = GroupCommit.of(journal, on_failure, figures)

    def commit(self, _pool: str) -> Commit:
        """See `PoolJournal.commit`: there is one for all."""
        return self._commit

    def add(self, line: Line, entry: bytes) -> None:
        """See `PoolJournal.add`."""
        self._commit.add(line, entry)

    async def create(self, name: str, config: PoolConfig, request: bytes | None) -> Line:
        """See `PoolJournal.create`."""
        try:
            return Line(self._journal.create(name, encode_definition(config, request)))
        except AppendFailed as error:
            raise self._commit.fail(error) from error

    async def drop(self, _name: str, line: Line) -> None:
        """See `PoolJournal.drop`."""
        try:
            self._journal.drop(line.key)
        except AppendFailed as error:
            raise self._commit.fail(error) from error
        self._commit.discard(line)
