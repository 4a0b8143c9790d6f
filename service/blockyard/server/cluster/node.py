"""A node of a cluster: it joins, keeps its lease, and sees to it that each pool has an owner and a follower.

Every node finds the same order of candidates for each pool by itself. The first is to own it, and the next
one that does not own it follows. Nothing is agreed upon beside that: who owns a pool is whoever has written
so into its stream last.
"""

import asyncio
from dataclasses import dataclass

import structlog

from blockyard.core.config import PoolConfig
from blockyard.server.clock import Clock
from blockyard.server.cluster.buckets import Buckets
from blockyard.server.cluster.connection import persist
from blockyard.server.cluster.figures import ClusterFigures
from blockyard.server.cluster.hand_over_requests import HandOverRequests
from blockyard.server.cluster.heartbeat import Heartbeat
from blockyard.server.cluster.journal import ClusterJournal
from blockyard.server.cluster.lease import Lease
from blockyard.server.cluster.left_over import sweep_for_ever
from blockyard.server.cluster.members import Members
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.node_settings import NodeSettings
from blockyard.server.cluster.pool_maker import PoolMaker
from blockyard.server.cluster.reconciler import TICK_S, Reconciler
from blockyard.server.cluster.refusals import moving
from blockyard.server.cluster.registry import Registry
from blockyard.server.cluster.roles import Roles
from blockyard.server.cluster.surroundings import Surroundings
from blockyard.server.cluster.tasks import Chores, all_of
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.line import Line
from blockyard.server.pools import Pools

log = structlog.get_logger("blockyard.cluster")

HEAR_OTHERS_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a node consists of once it reaches NATS."""

    around: Surroundings
    maker: PoolMaker
    requests: HandOverRequests
    reconciler: Reconciler


class ClusterNode:
    """One node; it does nothing before `run`.

    Args:
        settings: What it is told.
        clock: The time that commands are given.
        journal_figures: What publishing costs.

    Attributes:
        settings: Its own.
        lease: Its own.
        figures: What has happened to it.
        journal: What its pools are written to.
        roles: What it is to pools.
    """

    def __init__(self, settings: NodeSettings, clock: Clock, journal_figures: JournalFigures) -> None:
        self.settings = settings
        self.lease = Lease(settings.lease_ms)
        self.figures = ClusterFigures()
        self.roles = Roles()
        self.journal = ClusterJournal(self.lease, self._create, self._drop)
        self._clock = clock
        self._journal_figures = journal_figures
        self._news = asyncio.Event()
        self._chores = Chores()
        self._parts: _Parts | None = None

    @property
    def around(self) -> Surroundings | None:
        """What it has; None until it reaches NATS."""
        return None if self._parts is None else self._parts.around

    @property
    def is_connected(self) -> bool:
        """Whether NATS answers, as far as is known."""
        return self._parts is not None and self._parts.around.connection.is_connected

    async def join(self, pools: Pools) -> None:
        """Reach NATS, and find or make what a cluster has there: it takes as long as it takes.

        Raises:
            nats.js.errors.Error: NATS has no JetStream, or refuses what is made.
        """
        settings, names = self.settings, Names(self.settings.cluster)
        connection = await settings.access.connect(f"blockyard {settings.node}", self._news.set)
        buckets = await Buckets.open(
            connection, names, num_replicas=settings.num_replicas, lease_ms=settings.lease_ms
        )
        heartbeat = Heartbeat(
            buckets.nodes,
            settings.node,
            settings.url,
            self.lease,
            counts=lambda: (self.roles.num_owned, self.roles.num_followed),
            on_change=self._news.set,
            on_lapse=self.figures.lease_lapsed,
        )
        around = Surroundings(
            settings=settings,
            connection=connection,
            names=names,
            heartbeat=heartbeat,
            members=Members(buckets.nodes, heartbeat, self._news.set),
            registry=Registry(buckets.pools, self._news.set),
            snapshots=buckets.snapshots,
            pools=pools,
            journal=self.journal,
            clock=self._clock,
            figures=self.figures,
            journal_figures=self._journal_figures,
            news=self._news,
            chores=self._chores,
        )
        maker = PoolMaker(around, self.roles)
        requests = HandOverRequests(connection, names, settings.node)
        reconciler = Reconciler(around, self.roles, maker, requests)
        self._parts = _Parts(around=around, maker=maker, requests=requests, reconciler=reconciler)

    @property
    def _joined(self) -> _Parts:
        assert self._parts is not None, "it has joined"
        return self._parts

    async def run(self) -> None:
        """Be a node, for ever: after `join`."""
        parts = self._joined
        around = parts.around
        await parts.requests.listen(parts.reconciler.heed)
        await all_of(
            around.heartbeat.run(),
            around.members.run(),
            around.registry.run(),
            parts.reconciler.run(),
            around.connection.ended(),  # a node that hears nothing any more is to be started again
        )

    async def sweep(self) -> None:
        """Delete what dead nodes have left over, for ever: after `join`."""
        around = self._joined.around
        await sweep_for_ever(around.connection, around.names, around.registry)

    async def ready(self) -> None:
        """Until it has a lease, and knows the pools and the nodes that there are: after `join`."""
        await persist(self._joined.around.registry.loaded, "the registry of pools cannot be read")
        while not self.lease.holds:  # noqa: ASYNC110 - time ends a lease, not an event
            await asyncio.sleep(TICK_S)
        await asyncio.sleep(HEAR_OTHERS_S)

    async def leave(self, within_s: float) -> None:
        """Hand all pools over to others, if there are any; then give the lease up."""
        if self.around is None:
            return
        heartbeat = self.around.heartbeat
        heartbeat.is_leaving = True
        heartbeat.beat_soon()
        self._news.set()
        until_s = asyncio.get_running_loop().time() + within_s
        while self.roles.num_owned and asyncio.get_running_loop().time() < until_s and self.lease.holds:
            if not self.around.members.staying:
                log.warning("no other node takes over this one's pools")
                break
            await asyncio.sleep(TICK_S)
        await self._stop()
        await heartbeat.leave()

    async def close(self) -> None:
        """The end: what it still owns others find out by its lease."""
        await self._chores.end()
        await self._stop()
        if self.around is not None:
            await self.around.connection.close()

    async def _stop(self) -> None:
        """Be nothing to any pool any more."""
        if self._parts is not None:
            self._parts.reconciler.end()
        await self.roles.stop_all()

    @property
    def _maker(self) -> PoolMaker:
        if self._parts is None:
            raise moving()
        return self._parts.maker

    async def _create(self, name: str, config: PoolConfig, request: bytes | None) -> Line:
        return await self._maker.create(name, config, request)

    async def _drop(self, name: str, line: Line) -> None:
        await self._maker.drop(name, line)
