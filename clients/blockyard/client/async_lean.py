"""The lean transport for event loops: `blockyard.client.lean` with ``await``."""

import asyncio
import ssl
import time
from dataclasses import dataclass, field

from blockyard.client.async_connection import AsyncConnection, connect
from blockyard.client.errors import ConnectionLost
from blockyard.client.http1 import MAX_BODY_BYTES, write_request
from blockyard.client.lean import lean_address
from blockyard.client.wire import Request, Response

MAX_CONNECTIONS = 100
"""At most so many are in use at once; who comes later waits for one, within its own time."""


@dataclass(slots=True)
class _Connections:
    """One loop's connections: the idle ones by origin, and the places for those in use."""

    loop: asyncio.AbstractEventLoop
    idle: dict[str, list[AsyncConnection]] = field(default_factory=dict)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONNECTIONS))

    def take(self, origin: str) -> AsyncConnection | None:
        """The idle one used last, which is the least likely to be stale; None without any."""
        idle = self.idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None


class AsyncLeanTransport:
    """An AsyncTransport of own sockets. On another event loop, as after a fork, it opens connections anew.

    Args:
        tls: As for `LeanTransport`.
        max_body_bytes: Longer responses are refused.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._tls = tls
        self._max_body_bytes = max_body_bytes
        self._is_closed = False
        self._connections: _Connections | None = None

    async def send(self, request: Request, timeout_s: float) -> Response:
        """As `AsyncTransport.send`; also raises ValueError as `LeanTransport.send` does."""
        deadline_s = time.monotonic() + timeout_s
        ours = self._of_this_loop()
        try:
            if ours.places.locked():  # a timeout costs as much as the rest: only where there is a wait
                async with asyncio.timeout(timeout_s):
                    await ours.places.acquire()
            else:
                await ours.places.acquire()
            try:
                return await self._exchange(ours, request, deadline_s)
            finally:
                ours.places.release()
        except TimeoutError as error:
            raise ConnectionLost(f"no reply from {request.origin} within {timeout_s:g} s") from error

    async def close(self) -> None:
        """Close all idle connections; those in use close after their response."""
        self._is_closed = True
        ours = self._of_this_loop()
        idle, ours.idle = [one for several in ours.idle.values() for one in several], {}
        for connection in idle:
            connection.close()
        for connection in idle:
            await connection.wait_closed()

    def _of_this_loop(self) -> _Connections:
        loop = asyncio.get_running_loop()
        ours = self._connections
        if ours is None or ours.loop is not loop:
            # Those of another loop are not even closed: in a forked child, its selector is the parent's.
            ours = self._connections = _Connections(loop)
        return ours

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")

    async def _exchange(self, ours: _Connections, request: Request, deadline_s: float) -> Response:
        self._check_open()
        connection = ours.take(request.origin)
        if connection is None:
            host, port, tls = lean_address(request.origin, self._tls)
            connection = await connect(host, port, deadline_s, tls=tls, max_body_bytes=self._max_body_bytes)
        try:
            response = await connection.exchange(write_request(request, connection.authority), deadline_s)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable and not self._is_closed:
            ours.idle.setdefault(request.origin, []).append(connection)
        else:
            connection.close()
        return response
