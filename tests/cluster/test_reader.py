"""Following a stream: each message once and in order, whatever happens to the server meanwhile."""

import asyncio
from functools import partial
from pathlib import Path

from nats.js.api import StreamConfig

from blockyard.server.cluster.connection import Connection, persist
from blockyard.server.cluster.reader import StreamReader
from blockyard.server.trial.nats_servers import NatsServers
from cluster.in_nats import connected

STREAM = StreamConfig(name="stream", subjects=["subject"], num_replicas=1)


def test_every_message_comes_once_and_in_order_though_the_server_is_killed_and_paused(
    tmp_path: Path,
) -> None:
    num_messages = 600

    async def publish(connection: Connection) -> None:
        for number in range(num_messages):
            await persist(partial(once, connection, number), "not published")
            await asyncio.sleep(0.002)

    async def once(connection: Connection, number: int) -> None:
        headers = {"Nats-Msg-Id": str(number)}
        await connection.jetstream.publish("subject", b"%d" % number, headers=headers, timeout=1)

    async def disturb(servers: NatsServers) -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(servers.kill, 0)
        await asyncio.to_thread(servers.restart, 0)
        await asyncio.sleep(0.3)
        servers.pause(0)
        await asyncio.sleep(1.0)
        servers.resume(0)

    async def work(connection: Connection) -> None:
        await connection.jetstream.add_stream(STREAM)
        async with asyncio.TaskGroup() as tasks, StreamReader(connection, "stream", after=0) as reader:
            tasks.create_task(publish(connection))
            tasks.create_task(disturb(servers))
            read: list[bytes] = []
            while len(read) < num_messages:
                read += [message.data for message in await reader.read()]
        assert read == [b"%d" % number for number in range(num_messages)]
        assert reader.num_pending == 0

    with NatsServers(tmp_path, num_servers=1) as servers:
        connected(servers, work)


def test_a_reader_begins_behind_a_place_and_knows_how_much_there_is_to_come(tmp_path: Path) -> None:
    async def work(connection: Connection) -> None:
        await connection.jetstream.add_stream(STREAM)
        for number in range(10):
            await connection.jetstream.publish("subject", b"%d" % number)
        async with StreamReader(connection, "stream", after=7) as reader:
            messages = await reader.read()
            while len(messages) < 3:
                messages += await reader.read()
            assert [(each.sequence, each.data) for each in messages] == [(8, b"7"), (9, b"8"), (10, b"9")]
            await connection.jetstream.purge_stream("stream")
            await connection.jetstream.publish("subject", b"last")
            assert [each.sequence for each in await reader.read()] == [11]

    with NatsServers(tmp_path, num_servers=1) as servers:
        connected(servers, work)
