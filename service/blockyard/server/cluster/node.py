"""A node of a cluster: it joins, keeps its lease, and sees to it that each pool has an owner and a follower.

Every node finds the same order of candidates for each pool by itself. The first is to own it, and the next
one that does not own it follows. Nothing is agreed upon beside that: who owns a pool is whoever has written
so into its stream last.
"""

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from nats.aio.msg import Msg

from blockyard.server.clock import Clock
from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import PASSING, Connection, NatsAccess, persist
from blockyard.server.cluster.figures import ClusterFigures, TakeOver
from blockyard.server.cluster.journal import ClusterJournal
from blockyard.server.cluster.lease import Lease
from blockyard.server.cluster.left_over import sweep_for_ever
from blockyard.server.cluster.making import Maker
from blockyard.server.cluster.members import TTL_LEASES, Members
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.pool_role import MAX_LOADS, PoolRole, Stage, Surroundings
from blockyard.server.cluster.registry import RegisteredPool, Registry
from blockyard.server.cluster.rendezvous import candidates
from blockyard.server.cluster.snapshot_bucket import SnapshotBucket
from blockyard.server.cluster.tasks import all_of, end
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.pools import Pools
from blockyard.server.settings import Settings

log = structlog.get_logger("blockyard.cluster")

TICK_S = 0.05
"""How often the lease is looked at."""
TICKS_A_LOOK = 10
"""How often all pools are, beside whenever something has changed."""
LINGER_S = 30.0
"""So long a pool stays warm that another node is to follow: that one has to read it first."""
HEIR_S = 5.0
"""So long the node that a pool was handed over to has for taking it over."""
ASK_EVERY_S = 0.5
"""How often an owner is asked to hand a pool over."""
HEAR_OTHERS_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What a node is told.

    Attributes:
        access: How it reaches NATS.
        cluster: The cluster's name.
        node: Its own.
        url: Where others reach it.
        num_replicas: Of streams and buckets that it makes.
        lease_ms: How long its lease lasts.
    """

    access: NatsAccess
    cluster: str
    node: str
    url: str
    num_replicas: int
    lease_ms: int

    @classmethod
    def of(cls, settings: Settings, url: str, host_name: str) -> "NodeSettings":
        """As ``settings`` have it; ``url`` and ``host_name`` where they say nothing."""
        return cls(
            access=NatsAccess.of(settings),
            cluster=settings.cluster_name,
            node=settings.node_name or host_name,
            url=settings.advertise_url or url,
            num_replicas=settings.cluster_replicas,
            lease_ms=settings.node_lease_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a node has once it reaches NATS."""

    connection: Connection
    members: Members
    registry: Registry
    around: Surroundings


class ClusterNode:
    """One node; it does nothing before `run`.

    Args:
        settings: What it is told.
        clock: The time that commands are given.
        journal_figures: What publishing costs.

    Attributes:
        settings: Its own.
        names: The cluster's.
        lease: Its own.
        figures: What has happened to it.
        journal: What its pools are written to.
        roles: What it is to pools, by their names.
    """

    def __init__(self, settings: NodeSettings, clock: Clock, journal_figures: JournalFigures) -> None:
        self.settings = settings
        self.names = Names(settings.cluster)
        self.lease = Lease(settings.lease_ms)
        self.figures = ClusterFigures()
        self.roles: dict[str, PoolRole] = {}
        self._maker = Maker(self)
        self.journal = ClusterJournal(self.lease, self._maker.create, self._maker.drop)
        self._clock = clock
        self._journal_figures = journal_figures
        self._joined: Joined | None = None
        self._is_over = False
        self._news = asyncio.Event()
        self._orders: dict[str, list[str]] = {}
        self._unwanted_s: dict[str, float] = {}
        self._asked_s: dict[str, float] = {}
        self._free_s: dict[str, float] = {}
        self._chores: set[asyncio.Task[None]] = set()

    @property
    def joined(self) -> Joined | None:
        """None until it reaches NATS."""
        return self._joined

    @property
    def is_connected(self) -> bool:
        """Whether NATS answers, as far as is known."""
        return self._joined is not None and self._joined.connection.is_connected

    async def join(self, pools: Pools) -> None:
        """Reach NATS, find or make what a cluster has there, and have a lease: it takes as long as it takes.

        Raises:
            nats.js.errors.Error: NATS has no JetStream, or refuses what is made.
        """
        settings, names = self.settings, self.names
        connection = await settings.access.connect(f"blockyard {settings.node}", self.note)
        num_replicas = settings.num_replicas
        ttl_s = TTL_LEASES * settings.lease_ms / 1_000
        nodes = await persist(
            lambda: Bucket.open(connection, names.nodes, num_replicas=num_replicas, ttl_s=ttl_s),
            "the bucket of nodes cannot be had",
        )
        registered = await persist(
            lambda: Bucket.open(connection, names.pools, num_replicas=num_replicas),
            "the bucket of pools cannot be had",
        )
        snapshots = await persist(
            lambda: SnapshotBucket.open(connection, names.snapshots, num_replicas=num_replicas),
            "the bucket of snapshots cannot be had",
        )
        members = Members(
            nodes,
            settings.node,
            settings.url,
            self.lease,
            counts=self._counts,
            on_change=self._forget_orders,
            on_lapse=self.figures.lease_lapsed,
        )
        registry = Registry(registered, self.note)
        around = Surroundings(
            connection=connection,
            names=names,
            members=members,
            registry=registry,
            snapshots=snapshots,
            pools=pools,
            journal=self.journal,
            clock=self._clock,
            figures=self.figures,
            journal_figures=self._journal_figures,
            loads=asyncio.Semaphore(MAX_LOADS),
            on_news=self.note,
        )
        self._joined = Joined(connection=connection, members=members, registry=registry, around=around)

    async def run(self) -> None:
        """Be a node, for ever: after `join`."""
        joined = self._joined
        assert joined is not None, "it has joined"
        await joined.connection.client.subscribe(
            self.names.requests(self.settings.node), cb=self._heed_request
        )
        await all_of(
            joined.members.run(),
            joined.registry.run(),
            self._see_to_pools(joined),
            joined.connection.ended(),  # a node that hears nothing any more is to be started again
        )

    async def sweep(self) -> None:
        """Delete what dead nodes have left over, for ever: after `join`."""
        joined = self._joined
        assert joined is not None, "it has joined"
        await sweep_for_ever(joined.connection, self.names, joined.registry)

    async def ready(self) -> None:
        """Until it has a lease, and knows the pools and the nodes that there are."""
        joined = self._joined
        assert joined is not None, "it has joined"
        await persist(joined.registry.loaded, "the registry of pools cannot be read")
        while not self.lease.holds:  # noqa: ASYNC110 - time ends a lease, not an event
            await asyncio.sleep(TICK_S)
        await asyncio.sleep(HEAR_OTHERS_S)

    async def leave(self, within_s: float) -> None:
        """Hand all pools over to others, if there are any; then give the lease up."""
        joined = self._joined
        if joined is None:
            return
        members = joined.members
        members.is_leaving = True
        members.beat_soon()
        self._forget_orders()
        until_s = asyncio.get_running_loop().time() + within_s
        while self._num_owned() and asyncio.get_running_loop().time() < until_s and self.lease.holds:
            if not [name for name, word in members.live.items() if not word.is_leaving]:
                log.warning("no other node takes over this one's pools")
                break
            await asyncio.sleep(TICK_S)
        self._is_over = True
        await self._stop_all()
        await members.leave()

    async def close(self) -> None:
        """The end: what it still owns others find out by its lease."""
        await end(*self._chores)
        self._is_over = True
        await self._stop_all()
        if self._joined is not None:
            await self._joined.connection.close()

    async def _stop_all(self) -> None:
        roles, self.roles = list(self.roles.values()), {}
        for role in roles:
            await role.stop()

    def note(self) -> None:
        """Something has changed: look at all pools soon."""
        self._news.set()

    def order(self, pool: str) -> list[str]:
        """The candidates for the pool of this name: live nodes that do not leave, the one to own it first."""
        joined = self._joined
        if joined is None:
            return []
        order = self._orders.get(pool)
        if order is None:
            nodes = [name for name, word in joined.members.live.items() if not word.is_leaving]
            order = self._orders[pool] = candidates(pool, nodes)
        return order

    def standby(self, pool: RegisteredPool) -> str | None:
        """The node that is to follow it."""
        owner = self._owner_node(pool)
        return next((node for node in self.order(pool.name) if node != owner), None)

    def do(self, chore: Coroutine[Any, Any, None]) -> None:
        """Do something beside all else."""
        task = asyncio.create_task(_logged(chore))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def _forget_orders(self) -> None:
        self._orders.clear()
        self.note()

    def _counts(self) -> tuple[int, int]:
        num_followed = sum(role.stage is Stage.FOLLOWING for role in self.roles.values())
        return self._num_owned(), num_followed

    def _num_owned(self) -> int:
        return sum(role.stage in (Stage.OWNING, Stage.LEAVING) for role in self.roles.values())

    async def _see_to_pools(self, joined: Joined) -> None:
        num_ticks = 0
        while not self._is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._news.wait()
            num_ticks += 1
            for role in list(self.roles.values()):
                if role.has_lapsed:
                    role.suspend()
            if self._news.is_set() or num_ticks % TICKS_A_LOOK == 0:
                self._news.clear()
                if self.lease.holds:
                    await self._look(joined)

    async def _look(self, joined: Joined) -> None:
        """See to every pool once."""
        registered = {pool.name: pool for pool in joined.registry}
        for role in list(self.roles.values()):
            pool = registered.get(role.name)
            is_gone = pool is None or pool.key != role.key
            if is_gone and role.stage in (Stage.LOADING, Stage.FOLLOWING, Stage.SUSPENDED):
                await self._stop(role)
        for pool in registered.values():
            known = self.roles.get(pool.name)
            if known is not None:
                if not known.is_busy and known.key == pool.key:
                    await self._see_to(pool, known, joined)
            elif self.settings.node in self._wanted(pool):
                self.roles[pool.name] = PoolRole(pool.name, pool.key, joined.around)
                self.roles[pool.name].follow()

    def _owner_node(self, pool: RegisteredPool) -> str:
        role = self.roles.get(pool.name)
        if role is not None and role.stage is Stage.FOLLOWING and role.followed is not None:
            holder = role.followed.holder
            return "" if holder is None else holder.node
        return pool.node

    def _wanted(self, pool: RegisteredPool) -> list[str]:
        """The nodes that are to own or follow it."""
        standby = self.standby(pool)
        return [*self.order(pool.name)[:1], *([] if standby is None else [standby])]

    async def _see_to(self, pool: RegisteredPool, role: PoolRole, joined: Joined) -> None:
        node = self.settings.node
        if role.stage is Stage.SUSPENDED:
            role.act(self._regain(role))
        elif role.stage is Stage.FOLLOWING and role.is_warm:
            self._see_to_owner(pool, role, joined)
        if role.is_busy or role.stage not in (Stage.LOADING, Stage.FOLLOWING) or node in self._wanted(pool):
            self._unwanted_s.pop(pool.name, None)
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._unwanted_s.setdefault(pool.name, now_s) > LINGER_S:
            await self._stop(role)

    def _see_to_owner(self, pool: RegisteredPool, role: PoolRole, joined: Joined) -> None:
        """The pool is warm here: own it, if nobody else does and this node is the one to."""
        followed, members, node = role.followed, joined.members, self.settings.node
        assert followed is not None, "it is warm"
        is_first = self.order(pool.name)[:1] == [node]
        holder = followed.holder
        if holder is not None:
            self._free_s.pop(pool.name, None)
        if followed.is_deleted:
            if is_first:
                self.do(self._maker.bury(pool, followed.ownership))
        elif holder is None:
            now_s = asyncio.get_running_loop().time()
            is_late = now_s - self._free_s.setdefault(pool.name, now_s) > HEIR_S
            if followed.heir == node or (is_first and (is_late or followed.heir not in members.live)):
                how = TakeOver.PLANNED if followed.heir == node else TakeOver.FORCED
                role.act(self._take_over(role, how))
        elif holder.node == node:
            if is_first or holder == members.me:
                role.act(self._take_over(role, TakeOver.REGAINED))
        elif is_first and members.is_dead(holder):
            role.act(self._take_over(role, TakeOver.FORCED))
        elif is_first:
            self._ask(pool.name, holder.node)

    async def _take_over(self, role: PoolRole, how: TakeOver) -> None:
        await role.take_over(how)
        self._note_owner(role)

    async def _regain(self, role: PoolRole) -> None:
        await role.regain()
        self._note_owner(role)

    def _note_owner(self, role: PoolRole) -> None:
        if role.stage is Stage.OWNING:
            self.do(self._register(role.name, role.ownership))

    async def _register(self, name: str, ownership: int) -> None:
        joined = self._joined
        assert joined is not None, "it has joined"
        note = joined.registry.note_owner
        await persist(lambda: note(name, self.settings.node, ownership), "an owner cannot be registered")

    async def _stop(self, role: PoolRole) -> None:
        for times in (self._unwanted_s, self._asked_s, self._free_s):
            times.pop(role.name, None)
        if self.roles.get(role.name) is role:  # else the name is another's by now
            del self.roles[role.name]
        await role.stop()

    # Hand-overs

    def _ask(self, pool: str, owner: str) -> None:
        """Ask the owner for the pool, now and then."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_s.get(pool, -ASK_EVERY_S) >= ASK_EVERY_S:
            self._asked_s[pool] = now_s
            self.do(self._request(pool, owner))

    async def _request(self, pool: str, owner: str) -> None:
        joined = self._joined
        assert joined is not None, "it has joined"
        request = json.dumps({"pool": pool, "heir": self.settings.node}).encode()
        with contextlib.suppress(*PASSING):
            await joined.connection.client.publish(self.names.requests(owner), request)

    async def _heed_request(self, message: Msg) -> None:
        """Another node asks for a pool: it gets it, if this node owns it, and finds that one to be first."""
        asked = json.loads(message.data)
        pool, heir = asked["pool"], asked["heir"]
        role = self.roles.get(pool)
        if (
            role is not None
            and role.stage is Stage.OWNING
            and not role.is_busy
            and heir != self.settings.node
            and self.order(pool)[:1] == [heir]
        ):
            role.act(role.hand_over(heir))


async def _logged(chore: Coroutine[Any, Any, None]) -> None:
    """``chore``, which others try again where it fails."""
    try:
        await chore
    except PASSING as error:
        log.warning("a chore has failed", chore=repr(chore), error=repr(error))
    except Exception:
        log.exception("a chore has failed", chore=repr(chore))
