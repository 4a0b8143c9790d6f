"""Nodes within one process, over a real NATS server: what others do to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from nats.errors import ConnectionClosedError

from blockyard.core.errors import NotReady
from blockyard.server.clock import Clock
from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import Connection, NatsAccess, persist
from blockyard.server.cluster.journal import ClusterJournal, OwnerCommit
from blockyard.server.cluster.lease import Lease
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.node import ClusterNode
from blockyard.server.cluster.node_settings import NodeSettings
from blockyard.server.cluster.pool_stream import PoolStream
from blockyard.server.cluster.stage import Stage
from blockyard.server.cluster.surroundings import Surroundings
from blockyard.server.cluster.tasks import end
from blockyard.server.events.hub import EventHub
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.interface import PoolKey
from blockyard.server.pools import Pools
from blockyard.server.trial.nats_servers import NatsServers
from cluster.in_nats import connected
from cluster.streams import CONFIG

LEASE_MS = 2_000
WITHIN_S = 30.0


class Node:
    """A node without a server."""

    def __init__(self, servers: NatsServers, cluster: str, name: str) -> None:
        settings = NodeSettings(
            access=NatsAccess(servers=(servers.urls,)),
            cluster=cluster,
            node=name,
            url=f"http://{name}:1",
            num_replicas=1,
            lease_ms=LEASE_MS,
        )
        self.node = ClusterNode(settings, Clock(), JournalFigures())
        journal = self.node.journal
        self.pools = Pools(100, 10_000, journal, EventHub(journal.commit, None, "here"))
        self.running: asyncio.Task[None] | None = None

    @property
    def around(self) -> Surroundings:
        around = self.node.around
        assert around is not None
        return around

    def stage(self, pool: str) -> Stage | None:
        role = self.node.roles.get(pool)
        return None if role is None else role.stage


@asynccontextmanager
async def nodes(servers: NatsServers, cluster: str, *names: str) -> AsyncIterator[list[Node]]:
    made = [Node(servers, cluster, name) for name in names]
    try:
        for each in made:
            await each.node.join(each.pools)
            each.running = asyncio.create_task(each.node.run())
        for each in made:
            await each.node.ready()
        await until(lambda: all(len(each.around.members.live) == len(made) for each in made))
        yield made
    finally:
        for each in made:
            if each.running is not None:
                await end(each.running)
            await each.node.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def num_following() -> int:
    """Tasks that follow a pool."""
    return sum("_follow_for_ever" in repr(task.get_coro()) for task in asyncio.all_tasks())


def test_values_that_are_none_of_ours_end_no_node(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        async with nodes(servers, "garbage", "a") as [a]:
            for bucket in ("garbage-nodes", "garbage-pools"):
                values = await connection.jetstream.key_value(bucket)
                for number, garbage in enumerate((b"", b"{", b"[]", b"7", b"{}", b'{"is_deleted": 1}')):
                    await values.put(f"x{number}", garbage)
            registry = a.around.registry
            await registry.loaded()
            await a.pools.create("pool", CONFIG)
            assert [pool.name for pool in registry] == ["pool"]
            with pytest.raises(NotReady):
                await a.pools.create("x1", CONFIG)
            assert a.running is not None
            assert not a.running.done()

    connected(servers, work)


def test_a_pool_that_is_made_where_its_namesake_was_followed_is_followed_no_more(
    servers: NatsServers,
) -> None:
    async def work(_: Connection) -> None:
        async with nodes(servers, "namesakes", "a", "b") as [a, b]:
            for number in range(5):
                name = f"pool-{number}"
                await a.pools.create(name, CONFIG)
                await until(lambda name=name: Stage.FOLLOWING in (b.stage(name), a.stage(name)))  # type: ignore[misc]
                await until(lambda name=name: Stage.OWNING in (b.stage(name), a.stage(name)))  # type: ignore[misc]
                owner, other = (a, b) if a.stage(name) is Stage.OWNING else (b, a)
                await owner.pools.delete(name, force=False)
                await other.around.registry.look(name)
                await other.pools.create(name, CONFIG)
            await until(lambda: num_following() == 5)
            for each in (a, b):
                assert sum(role.stage is not Stage.OWNING for role in each.node.roles.values()) <= 5

    connected(servers, work)


def test_a_commit_that_is_over_does_not_close_the_one_after_it(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        async def never(*_: object) -> None:
            raise AssertionError

        def commit() -> OwnerCommit:
            stream = PoolStream(connection, Names("commits"), key)
            return OwnerCommit(stream, lambda: True, lambda _: None, JournalFigures())

        key = PoolKey(1)
        journal = ClusterJournal(Lease(LEASE_MS), never, never)  # type: ignore[arg-type]
        earlier, later = commit(), commit()
        journal.open("pool", key, earlier)
        journal.open("pool", key, later)
        journal.close("pool", key, earlier)
        assert journal.commit("pool") is later
        journal.close("pool", key, later)
        assert journal.commit("pool") is not later

    connected(servers, work)


def test_a_node_is_told_where_its_connection_is_ended_for_good(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        await connection.client.close()
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(WITHIN_S):
                await connection.ended()
        with pytest.raises(ConnectionClosedError):
            async with asyncio.timeout(WITHIN_S):
                await persist(lambda: Bucket.open(connection, "bucket", num_replicas=1), "no bucket")

    connected(servers, work)
