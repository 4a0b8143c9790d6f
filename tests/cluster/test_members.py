"""Leases: a silent node is found dead once its lease is over, and not before; then it knows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.heartbeat import Heartbeat
from blockyard.server.cluster.lease import Lease
from blockyard.server.cluster.members import Member, Members
from blockyard.server.cluster.tasks import all_of, end
from blockyard.server.trial.nats_servers import NatsServers
from cluster.in_nats import connected

LEASE_MS = 600
WITHIN_S = 30.0


class Node:
    """A member of the bucket of nodes, and nothing else."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self.lapses = 0
        self.lease = Lease(LEASE_MS)
        self.heartbeat = Heartbeat(
            bucket,
            name,
            f"http://{name}:1",
            self.lease,
            counts=lambda: (0, 0),
            on_change=lambda: None,
            on_lapse=self._lapsed,
        )
        self.members = Members(bucket, self.heartbeat, lambda: None)
        self._running: asyncio.Task[None] | None = None

    def _lapsed(self) -> None:
        self.lapses += 1

    def start(self) -> None:
        self._running = asyncio.create_task(all_of(self.heartbeat.run(), self.members.run()))

    async def stop(self) -> None:
        """It is silent from now on, as if its process were stopped."""
        assert self._running is not None
        await end(self._running)


@asynccontextmanager
async def nodes(connection: Connection, bucket_name: str, *names: str) -> AsyncIterator[list[Node]]:
    bucket = await Bucket.open(connection, bucket_name, num_replicas=1, ttl_s=60)
    made = [Node(bucket, name) for name in names]
    for node in made:
        node.start()
    try:
        yield made
    finally:
        for node in made:
            await node.stop()


def member_of(node: Node, name: str) -> Member:
    (member,) = [each for each in node.members if each.name == name]
    return member


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def test_nodes_hear_of_each_other_and_of_one_that_leaves(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        async with nodes(connection, "hear", "a", "b") as (a, b):
            await until(lambda: set(a.members.live) == set(b.members.live) == {"a", "b"})
            assert a.members.url_of("b") == "http://b:1"
            b.heartbeat.is_leaving = True
            b.heartbeat.beat_soon()
            await until(lambda: a.members.live["b"].is_leaving)
            await b.heartbeat.leave()
            await until(lambda: set(a.members.live) == {"a"})
            assert not b.lease.holds

    connected(servers, work)


def test_a_silent_node_is_found_dead_and_its_own_lease_is_over_by_then(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        async with nodes(connection, "silent", "a", "b") as (a, b):
            await until(lambda: "b" in a.members.live and b.lease.holds)
            holder = b.heartbeat.me
            assert not a.members.is_dead(holder)
            await b.stop()
            await until(lambda: a.members.is_dead(holder))
            assert not b.lease.holds
            assert await a.members.confirm_dead(holder)
            b.start()
            await until(lambda: b.lease.holds)
            assert b.heartbeat.me != holder
            assert b.heartbeat.holds(b.heartbeat.session)
            assert not b.heartbeat.holds(holder.session)
            assert b.lapses == 1
            await until(lambda: "b" in a.members.live)
            assert a.members.is_dead(holder)
            assert not a.members.is_dead(b.heartbeat.me)

    connected(servers, work)


def test_a_node_that_was_only_not_heard_is_not_found_dead(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        async with nodes(connection, "deaf", "a", "b") as (a, b):
            await until(lambda: "b" in a.members.live and b.lease.holds)
            first = member_of(a, "b").revision
            await until(lambda: member_of(a, "b").revision > first + 2)
            member = member_of(a, "b")
            member.heard_ns -= 60_000_000_000  # as if nothing had come for a minute
            member.revision = first
            holder = b.heartbeat.me
            await asyncio.sleep(2 * LEASE_MS / 1_000)
            assert not await a.members.confirm_dead(holder)
            assert b.lapses == 0

    connected(servers, work)


def test_a_key_that_has_run_out_before_its_time_is_no_sign_of_death(servers: NatsServers) -> None:
    """As where the clock of a NATS server is set, and a node has come too late to have heard the other."""

    async def work(connection: Connection) -> None:
        async with nodes(connection, "vanished", "a") as [a]:
            await until(lambda: a.lease.holds)
            holder = a.heartbeat.me
            await a.stop()
            await connection.jetstream.purge_stream("KV_vanished", subject="$KV.vanished.a")
            async with nodes(connection, "vanished", "b") as [b]:
                await until(lambda: b.lease.holds)
                while not await b.members.confirm_dead(holder):  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.005)
                assert not a.lease.holds

    connected(servers, work)


def test_two_processes_of_one_name_have_no_lease_at_the_same_time(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        async with nodes(connection, "namesakes", "a", "a") as (first, second):
            await until(lambda: first.lease.holds or second.lease.holds)
            holding, waiting = (first, second) if first.lease.holds else (second, first)
            for _ in range(100):
                await asyncio.sleep(2 * LEASE_MS / 1_000 / 100)
                assert not waiting.lease.holds
            assert holding.lease.holds
            await holding.stop()
            await until(lambda: waiting.lease.holds)
            assert not holding.lease.holds

    connected(servers, work)
