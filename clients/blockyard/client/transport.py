"""Ways to carry a request to its server: all of them alike to the caller.

`LeanTransport` speaks plain HTTP over its own sockets and costs a tenth of a general client; `HttpxTransport`
and `AsyncHttpxTransport` do what httpx does: TLS, proxies, settings of one's own.
"""

import os
import threading
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from blockyard.client.errors import ConnectionLost, UnexpectedReply
from blockyard.client.http1 import Connection, NothingArrived
from blockyard.client.wire import Request, Response

MAX_IDLE_CONNECTIONS = 32
"""Kept open per server by `LeanTransport`; more may be in use at once."""


class Transport(Protocol):
    """Carries requests, from any thread."""

    def send(self, request: Request, timeout_s: float) -> Response:
        """The response, whatever its status; redirects are not followed.

        Raises:
            ConnectionLost: No response arrived within ``timeout_s``.
            UnexpectedReply: It is not HTTP.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class AsyncTransport(Protocol):
    """Carries requests, on one event loop."""

    async def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class LeanTransport:
    """Plain HTTP over kept-alive connections of its own. Thread-safe; a forked child opens new ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[Connection]] = {}
        self._process_id = os.getpid()
        self._is_closed = False

    def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`. A kept connection that its server has closed meanwhile is replaced."""
        connection = self._take_idle(request.origin)
        if connection is not None:
            try:
                return self._exchange(connection, request, timeout_s)
            except NothingArrived:
                pass  # closed between our look and our request; a change is safe to repeat, having its key
        parts = urlsplit(request.origin)
        if parts.scheme != "http" or parts.hostname is None:
            raise UnexpectedReply(f"{request.origin} needs transport='httpx'")
        return self._exchange(Connection(parts.hostname, parts.port or 80, timeout_s), request, timeout_s)

    def close(self) -> None:
        """Close all idle connections; those in use close after their response."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        _close_all(idle)

    def _exchange(self, connection: Connection, request: Request, timeout_s: float) -> Response:
        try:
            response = connection.exchange(request, timeout_s)
        except BaseException:
            connection.close()
            raise
        self._give_back(request.origin, connection)
        return response

    def _take_idle(self, origin: str) -> Connection | None:
        if self._process_id != os.getpid():  # forked: the sockets are the parent's too
            self._lock, self._process_id = threading.Lock(), os.getpid()
            inherited, self._idle = self._idle, {}
            _close_all(inherited)  # our descriptors; the parent's stay open
        while True:
            with self._lock:
                if self._is_closed:
                    raise ConnectionLost("the client is closed")
                connections = self._idle.get(origin)
                if not connections:
                    return None
                connection = connections.pop()  # the one used last: the least likely to be stale
            if not connection.is_stale():
                return connection
            connection.close()

    def _give_back(self, origin: str, connection: Connection) -> None:
        if connection.is_reusable:
            with self._lock:
                idle = self._idle.setdefault(origin, [])
                if not self._is_closed and len(idle) < MAX_IDLE_CONNECTIONS:
                    idle.append(connection)
                    return
        connection.close()


def _close_all(idle: dict[str, list[Connection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


class HttpxTransport:
    """A Transport of httpx.

    Args:
        client: With settings of one's own (TLS, proxies, limits); closed with the transport.
    """

    def __init__(self, client: httpx.Client | None = None) -> None:
        self._client = client or httpx.Client()

    def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`; ``timeout_s`` holds for each phase, such as a pause in the response."""
        if self._client.is_closed:
            raise ConnectionLost("the client is closed")
        try:
            reply = self._client.request(
                request.method,
                request.origin + request.target,
                headers=request.headers,
                content=request.body or None,
                timeout=timeout_s,
                follow_redirects=False,
            )
        except httpx.HTTPError as error:
            raise _lost(request, error) from error
        return Response(reply.status_code, dict(reply.headers), reply.content)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncHttpxTransport:
    """An AsyncTransport of httpx.

    Args:
        client: As for `HttpxTransport`.
    """

    def __init__(self, client: httpx.AsyncClient | None = None) -> None:
        self._client = client or httpx.AsyncClient()

    async def send(self, request: Request, timeout_s: float) -> Response:
        """As `HttpxTransport.send`."""
        if self._client.is_closed:
            raise ConnectionLost("the client is closed")
        try:
            reply = await self._client.request(
                request.method,
                request.origin + request.target,
                headers=request.headers,
                content=request.body or None,
                timeout=timeout_s,
                follow_redirects=False,
            )
        except httpx.HTTPError as error:
            raise _lost(request, error) from error
        return Response(reply.status_code, dict(reply.headers), reply.content)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def can_go_lean(url: str) -> bool:
    """Whether ``url`` is plain HTTP and the environment names no proxy for it."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    proxies = getproxies()
    return not ("http" in proxies or "all" in proxies) or bool(proxy_bypass(parts.hostname or ""))


def _lost(request: Request, error: httpx.HTTPError) -> ConnectionLost | UnexpectedReply:
    sentence = f"{request.method} {request.origin}{request.target}: {str(error) or type(error).__name__}"
    if isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
        return UnexpectedReply(sentence)
    return ConnectionLost(sentence)
