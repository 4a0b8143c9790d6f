"""What an owner may tell: what is in its stream, and only while it has its lease."""

from collections.abc import Callable

import pytest

from blockyard.core.errors import NotReady
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.journal import OwnerCommit
from blockyard.server.cluster.lease import Lease, boot_time_ns
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.pool_stream import PoolStream
from blockyard.server.journal.command_codec import encode_command
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line
from cluster.in_nats import connected, one_server
from cluster.streams import commands


def holds_of(lease: Lease) -> Callable[[], bool]:
    return lambda: lease.holds


def test_nothing_is_told_without_a_lease_though_it_is_in_the_stream() -> None:
    lease, line, failures = Lease(60_000), Line(PoolKey(1)), list[AppendFailed]()

    async def work(connection: Connection) -> None:
        stream = PoolStream(connection, Names("test"), line.key)
        await stream.create(1)
        stream.ownership = 3
        commit = OwnerCommit(stream, holds_of(lease), failures.append, JournalFigures())
        assert commit.headers == {"Blockyard-Ownership": "3"}
        with pytest.raises(NotReady):
            commit.check_sound()  # it had none yet
        lease.renew(boot_time_ns())
        first, second = (encode_command(command, 1_000) for command in commands(0, 2))
        commit.add(line, first)
        await commit.settled()
        assert await stream.end() == 1
        commit.add(line, second)
        lease.end()
        with pytest.raises(NotReady):
            await commit.settled()
        assert await stream.end() == 2
        assert not failures

    with one_server() as servers:
        connected(servers, work)


def test_what_another_owner_came_before_is_not_told_and_said_once() -> None:
    lease, line, failures = Lease(60_000), Line(PoolKey(1)), list[AppendFailed]()
    lease.renew(boot_time_ns())

    async def work(connection: Connection) -> None:
        streams = [PoolStream(connection, Names("test"), line.key) for _ in range(2)]
        await streams[0].create(1)
        mine, another = (
            OwnerCommit(each, holds_of(lease), failures.append, JournalFigures()) for each in streams
        )
        first, second = (encode_command(command, 1_000) for command in commands(0, 2))
        another.add(line, first)
        await another.settled()
        for _ in range(2):
            mine.add(line, second)
            with pytest.raises(NotReady):
                await mine.settled()
        assert len(failures) == 1
        assert await streams[0].end() == 1

    with one_server() as servers:
        connected(servers, work)
