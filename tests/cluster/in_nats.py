"""What is done within a connection to a real NATS server of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from blockyard.server.cluster.connection import Connection, NatsAccess
from blockyard.server.trial.nats_servers import NatsServers


@contextmanager
def one_server() -> Iterator[NatsServers]:
    """A NATS server with JetStream."""
    with TemporaryDirectory() as folder, NatsServers(Path(folder), num_servers=1) as servers:
        yield servers


def connected(servers: NatsServers, work: Callable[[Connection], Awaitable[None]]) -> None:
    """Do ``work`` with a connection to ``servers``."""

    async def run() -> None:
        connection = await NatsAccess(servers=tuple(servers.urls.split(","))).connect("test")
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(run())
