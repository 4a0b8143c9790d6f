"""What a node's pools are written to: each to its own stream, for as long as this node owns it.

An answer about a pool is sent only while the node has its lease: then nobody else has taken the pool over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from blockyard.core.config import PoolConfig
from blockyard.server.cluster.lease import Lease
from blockyard.server.cluster.pool_stream import PoolStream
from blockyard.server.cluster.refusals import moving
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.group_commit import GroupCommit
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line
from blockyard.server.pool_journal import ALL_POOLS, NO_POOL, Commit, NothingToSettle

OWNERSHIP_HEADER = "Blockyard-Ownership"

Create: TypeAlias = Callable[[str, PoolConfig, bytes | None], Awaitable[Line]]
Drop: TypeAlias = Callable[[str, Line], Awaitable[None]]


class OwnerCommit(GroupCommit):
    """The commit of a pool that this node owns.

    Args:
        stream: The pool's.
        holds: Whether this node has the lease under which it owns the pool: a later one is no excuse.
        on_failure: Called once, if another node owns the pool by now.
        figures: What publishing costs.
    """

    def __init__(
        self,
        stream: PoolStream,
        holds: Callable[[], bool],
        on_failure: Callable[[AppendFailed], None],
        figures: JournalFigures,
    ) -> None:
        super().__init__(stream.append, on_failure, figures, is_slow=True, refusal=moving)
        self._holds = holds
        self._headers = {OWNERSHIP_HEADER: str(stream.ownership)}

    @property
    def headers(self) -> dict[str, str]:
        """See `Commit.headers`: under which number this node owns the pool."""
        return self._headers

    def check_sound(self) -> None:
        """See `Commit.check_sound`; without that lease nothing may be told either."""
        if not self._holds():
            raise moving()
        super().check_sound()


class ClusterJournal:
    """Empty at first.

    Args:
        lease: This node's.
        create: Makes a pool's stream, registers the pool, and opens its commit; see `PoolJournal.create`.
        drop: Takes them away; see `PoolJournal.drop`.
    """

    def __init__(self, lease: Lease, create: Create, drop: Drop) -> None:
        self._lease = lease
        self._create = create
        self._drop = drop
        self._commits: dict[str, OwnerCommit] = {}
        self._by_key: dict[PoolKey, OwnerCommit] = {}
        self._nothing = NothingToSettle()

    def open(self, name: str, key: PoolKey, commit: OwnerCommit) -> None:
        """The pool of this name is this node's from now on."""
        self._commits[name] = self._by_key[key] = commit

    def close(self, name: str, key: PoolKey, commit: OwnerCommit) -> None:
        """It is not any more, unless it has been opened with another commit since."""
        if self._commits.get(name) is commit:
            del self._commits[name]
        if self._by_key.get(key) is commit:
            del self._by_key[key]

    def commit(self, pool: str) -> Commit:
        """See `PoolJournal.commit`."""
        owned = self._commits.get(pool)
        if owned is not None:
            return owned
        return self._nothing if pool == NO_POOL else _LateCommit(self, pool)

    def commits(self, pool: str) -> list[OwnerCommit]:
        """Of the pools that this node owns: of all, or of the one of this name, if it is one of them."""
        if pool == ALL_POOLS:
            return list(self._commits.values())
        owned = self._commits.get(pool)
        return [] if owned is None else [owned]

    def check_lease(self) -> None:
        """Raise NotReady where this node has no lease."""
        if not self._lease.holds:
            raise moving()

    def add(self, line: Line, entry: bytes) -> None:
        """See `PoolJournal.add`."""
        self._by_key[line.key].add(line, entry)

    async def create(self, name: str, config: PoolConfig, request: bytes | None) -> Line:
        """See `PoolJournal.create`."""
        return await self._create(name, config, request)

    async def drop(self, name: str, line: Line) -> None:
        """See `PoolJournal.drop`."""
        await self._drop(name, line)


class _LateCommit:
    """The commit of all pools, or of one that was not this node's when it was asked for: it may be by now."""

    def __init__(self, journal: ClusterJournal, pool: str) -> None:
        self._journal = journal
        self._pool = pool

    @property
    def headers(self) -> dict[str, str]:
        """See `Commit.headers`: there is no one number."""
        return {}

    @property
    def settling(self) -> asyncio.Future[None] | None:
        """See `Commit.settling`; of several, one of them."""
        waited = (commit.settling for commit in self._journal.commits(self._pool))
        return next((each for each in waited if each is not None), None)

    async def settled(self) -> None:
        """See `Commit.settled`."""
        for commit in self._journal.commits(self._pool):
            await commit.settled()
        self.check_sound()

    def check_sound(self) -> None:
        """See `Commit.check_sound`."""
        self._journal.check_lease()
        for commit in self._journal.commits(self._pool):
            commit.check_sound()
