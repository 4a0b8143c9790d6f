"""Streams that a dead node has left over are deleted; those of pools, of new pools and of others are not."""

import asyncio
from datetime import UTC, datetime, timedelta

from nats.js.api import StreamConfig

from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.left_over import AGE_S, sweep
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.pool_stream import PoolStream
from blockyard.server.cluster.registry import Registry
from blockyard.server.cluster.tasks import end
from blockyard.server.journal.interface import PoolKey
from cluster.in_nats import connected, one_server
from cluster.streams import REGISTERED

NAMES = Names("test")


async def pool_streams(connection: Connection) -> set[str | None]:
    return {
        info.config.name
        for info in await connection.jetstream.streams_info()
        if not (info.config.name or "").startswith("KV_")
    }


def test_a_stream_of_no_pool_goes_once_it_is_old() -> None:
    async def work(connection: Connection) -> None:
        bucket = await Bucket.open(connection, NAMES.pools, num_replicas=1)
        registry = Registry(bucket, lambda: None)
        following = asyncio.create_task(registry.run())
        for key in (REGISTERED.key, PoolKey(99)):
            await PoolStream(connection, NAMES, key).create(1)
        for other in ("other-pool-0000000000000063", "test-pool-of-people"):
            await connection.jetstream.add_stream(StreamConfig(name=other, subjects=[other]))
        await registry.create(REGISTERED)
        everything = await pool_streams(connection)
        assert len(everything) == 4

        await sweep(connection, NAMES, registry, datetime.now(UTC))
        assert await pool_streams(connection) == everything
        await sweep(connection, NAMES, registry, datetime.now(UTC) + timedelta(seconds=AGE_S + 60))
        assert await pool_streams(connection) == everything - {NAMES.stream(PoolKey(99))}
        await end(following)

    with one_server() as servers:
        connected(servers, work)


def test_nothing_goes_while_a_value_may_stand_for_a_pool_of_a_later_version() -> None:
    async def work(connection: Connection) -> None:
        bucket = await Bucket.open(connection, NAMES.pools, num_replicas=1)
        registry = Registry(bucket, lambda: None)
        following = asyncio.create_task(registry.run())
        await PoolStream(connection, NAMES, REGISTERED.key).create(1)
        await bucket.create(REGISTERED.name, b"what a later version writes")
        await sweep(connection, NAMES, registry, datetime.now(UTC) + timedelta(seconds=AGE_S + 60))
        assert await pool_streams(connection) == {NAMES.stream(REGISTERED.key)}
        await end(following)

    with one_server() as servers:
        connected(servers, work)
