"""A node that asks another for its callers."""

import asyncio
import urllib.request

import pytest
from starlette.types import Message

from blockyard.core.errors import NotReady
from blockyard.server.cluster.directory import Owner
from blockyard.server.cluster.proxy import Proxy
from blockyard.server.sse import Streams
from events.publishing import EVENTS, make_pool
from server_process import ServerProcess, running_server
from waiting import wait_for


def num_followers(server: ServerProcess) -> float:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    [line] = [line for line in lines if line.startswith("blockyard_pool_event_followers{")]
    return float(line.rpartition(" ")[2])


def test_a_pool_that_has_moved_on_by_then_is_to_be_asked_for_again() -> None:
    """Whoever is at a proxy may not be able to follow a redirect."""

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 307 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> None:
        async def receive() -> Message:
            if told:
                return told.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            raise AssertionError(message)

        told: list[Message] = [{"type": "http.request", "body": b""}]
        async with await asyncio.start_server(redirect, "127.0.0.1") as listening:
            port = listening.sockets[0].getsockname()[1]
            proxy = Proxy("near", None, 30, Streams(10))
            scope = {"type": "http", "method": "GET", "path": EVENTS, "query_string": b"", "headers": []}
            with pytest.raises(NotReady):
                await proxy.forward(Owner("far", f"http://127.0.0.1:{port}", 1), scope, receive, send)
            await proxy.close()

    asyncio.run(ask())


def test_whoever_hangs_up_is_not_followed_for_any_more() -> None:
    async def follow(server: ServerProcess) -> None:
        has_begun = asyncio.Event()
        told: list[Message] = [{"type": "http.request", "body": b""}]

        async def receive() -> Message:
            if told:
                return told.pop()
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            if num_followers(server) == 1:
                has_begun.set()

        proxy = Proxy("near", None, 30, Streams(10))
        scope = {"type": "http", "method": "GET", "path": EVENTS, "query_string": b"", "headers": []}
        async with asyncio.timeout(30):
            await proxy.forward(Owner("far", server.url, 1), scope, receive, send)
        await proxy.close()

    with running_server("--volatile") as server:
        make_pool(server)
        asyncio.run(follow(server))
        wait_for(lambda: num_followers(server) == 0)
