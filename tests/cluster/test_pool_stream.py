"""The fence: whatever several nodes write to one pool's stream, it is the story of one pool."""

import asyncio
import itertools
import random

import pytest

from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.entries import Entry, Holder, Session
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.pool_stream import Outrun, PoolStream
from blockyard.server.cluster.reader import StreamReader
from blockyard.server.journal.interface import PoolKey, Record
from blockyard.server.trial.nats_servers import NatsServers
from cluster.in_nats import connected
from cluster.streams import REGISTERED, batch, pool_after

NAMES = Names("test")
KEY = REGISTERED.key


async def new_stream(connection: Connection, key: int) -> PoolStream:
    stream = PoolStream(connection, NAMES, PoolKey(key))
    await stream.create(1)
    stream.ownership = 1
    return stream


async def read_all(connection: Connection, key: int) -> FollowedPool:
    """The pool as whoever reads its stream from the beginning has it."""
    pool = FollowedPool.begin(REGISTERED, None)
    end = await PoolStream(connection, NAMES, PoolKey(key)).end()
    async with StreamReader(connection, NAMES.stream(PoolKey(key)), after=0) as reader:
        while pool.sequence < end:
            for message in await reader.read():
                pool.read(message)
    return pool


def record(begin: int, end: int) -> Record:
    return Record(key=KEY, number=end, payload=batch(1, begin, end).payload)


def test_what_a_replaced_owner_writes_is_refused_and_has_not_happened(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        old = await new_stream(connection, 1)
        await old.publish(Entry.take_over(Holder("a", Session("1")), 1, 0))
        await old.append([record(0, 3)])
        new = PoolStream(connection, NAMES, PoolKey(1))
        new.sequence, new.ownership = old.sequence, 2
        await new.publish(Entry.take_over(Holder("b", Session("1")), 2, 3))
        with pytest.raises(Outrun):
            await old.append([record(3, 5)])
        pool = await read_all(connection, 1)
        assert pool.pool.snapshot() == pool_after(3).snapshot()
        assert (pool.ownership, pool.sequence) == (2, 3)

    connected(servers, work)


def test_a_batch_larger_than_a_message_is_one_batch(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        stream = await new_stream(connection, 2)
        await stream.publish(Entry.take_over(Holder("a", Session("1")), 1, 0))
        connection.client._max_payload = 1_024 + 200  # as a server may say
        await stream.append([record(0, 20)])
        assert stream.sequence > 4
        pool = await read_all(connection, 2)
        assert pool.pool.snapshot() == pool_after(20).snapshot()

    connected(servers, work)


def test_the_fence_holds_after_what_was_written_has_been_purged(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        stream = await new_stream(connection, 3)
        await stream.publish(Entry.take_over(Holder("a", Session("1")), 1, 0))
        await stream.append([record(0, 3)])
        stale = PoolStream(connection, NAMES, PoolKey(3))
        await stream.forget(stream.sequence)
        with pytest.raises(Outrun):
            await stale.append([record(0, 3)])
        await stream.append([record(3, 4)])
        assert stream.sequence == await stream.end() == 3

    connected(servers, work)


def test_an_owner_learns_that_its_stream_is_gone(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        stream = await new_stream(connection, 4)
        await stream.publish(Entry.take_over(Holder("a", Session("1")), 1, 0))
        await stream.delete()
        with pytest.raises(Outrun, match="deleted"):
            await stream.append([record(0, 1)])

    connected(servers, work)


class Owner:
    """Takes over at random times, and writes while it believes that it owns the pool."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.stream = PoolStream(connection, NAMES, PoolKey(5))
        self.holder = Holder(name, Session("1"))
        self.number: int | None = None  # of the last command; None: it does not own the pool
        self.acknowledged: list[tuple[int, int, int]] = []  # ownership, commands from, to

    async def live(self, connection: Connection, num_deeds: int, seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(num_deeds):
            try:
                if self.number is None or draw.random() < 0.2:
                    pool = await read_all(connection, 5)
                    self.stream.sequence, self.stream.ownership = pool.sequence, pool.ownership + 1
                    await self.stream.publish(
                        Entry.take_over(self.holder, self.stream.ownership, pool.line.number)
                    )
                    self.number = pool.line.number
                end = self.number + draw.randint(1, 4)
                payload = batch(1, self.number, end).payload
                await self.stream.append([Record(key=KEY, number=end, payload=payload)])
                self.acknowledged.append((self.stream.ownership, self.number, end))
                self.number = end
            except Outrun:
                self.number = None
            await asyncio.sleep(draw.random() / 200)


def test_several_who_believe_to_own_a_pool_write_one_story(servers: NatsServers) -> None:
    async def work(connection: Connection) -> None:
        await new_stream(connection, 5)
        owners = [Owner(connection, name) for name in "abc"]
        await asyncio.gather(*(owner.live(connection, 25, seed) for seed, owner in enumerate(owners)))
        pool = await read_all(connection, 5)  # reads each batch as the next one, or raises
        assert pool.pool.snapshot() == pool_after(pool.line.number).snapshot()
        told = sorted(each for owner in owners for each in owner.acknowledged)
        assert len({ownership for ownership, _, _ in told}) > 3
        places = [(begin, end) for _, begin, end in told]
        assert places == sorted(places)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(places))
        assert places[-1][1] == pool.line.number

    connected(servers, work)
