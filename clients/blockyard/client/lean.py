"""The lean transport: plain HTTP over kept-alive connections of its own."""

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from blockyard.client.connection import Connection
from blockyard.client.http1 import MAX_BODY_BYTES, write_request
from blockyard.client.wire import Request, Response

MAX_IDLE_CONNECTIONS = 32
"""Kept open per server; more may be in use at once."""


@dataclass(slots=True)
class _Connections:
    """One process's connections, the idle ones by origin, and the lock over them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    idle: dict[str, list[Connection]] = field(default_factory=dict)

    def take_all(self) -> list[Connection]:
        taken, self.idle = self.idle, {}
        return [connection for connections in taken.values() for connection in connections]


class LeanTransport:
    """A Transport of own sockets. Thread-safe; a forked child opens connections of its own.

    Args:
        max_body_bytes: Longer responses are refused.
    """

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_body_bytes = max_body_bytes
        self._by_process: dict[int, _Connections] = {}
        self._is_closed = False

    def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`; also raises ValueError where the origin is not plain HTTP."""
        deadline_s = time.monotonic() + timeout_s
        ours = self._of_this_process()
        connection = self._take(ours, request.origin) or self._connect(request.origin, deadline_s)
        try:
            response = connection.exchange(write_request(request, connection.authority), deadline_s)
        except BaseException:
            connection.close()
            raise
        self._give_back(ours, request.origin, connection)
        return response

    def close(self) -> None:
        """Close all idle connections; those in use close after their response."""
        ours = self._of_this_process()
        with ours.lock:
            self._is_closed = True
            connections = ours.take_all()
        for connection in connections:
            connection.close()

    def _of_this_process(self) -> _Connections:
        process_id = os.getpid()
        ours = self._by_process.get(process_id)
        if ours is None:
            # The first call, or the first after a fork. No thread of a child can come by the parent's
            # connections: they stand under another key. Its lock may be held for ever, so nobody asks for it.
            ours = self._by_process.setdefault(process_id, _Connections())
            for other in self._by_process.keys() - {process_id}:
                inherited = self._by_process.pop(other, None)
                for connection in inherited.take_all() if inherited else ():
                    connection.close()  # our descriptor; the parent's stays open
        return ours

    def _take(self, ours: _Connections, origin: str) -> Connection | None:
        while True:
            with ours.lock:
                if self._is_closed:
                    raise RuntimeError("the client is closed")
                idle = ours.idle.get(origin)
                if not idle:
                    return None
                connection = idle.pop()  # the one used last: the least likely to be stale
            if not connection.is_stale():
                return connection
            connection.close()

    def _connect(self, origin: str, deadline_s: float) -> Connection:
        host, port = lean_address(origin)
        return Connection(host, port, deadline_s, max_body_bytes=self._max_body_bytes)

    def _give_back(self, ours: _Connections, origin: str, connection: Connection) -> None:
        with ours.lock:
            if connection.is_reusable and not self._is_closed:
                idle = ours.idle.setdefault(origin, [])
                if len(idle) < MAX_IDLE_CONNECTIONS:
                    idle.append(connection)
                    return
        connection.close()


def lean_address(origin: str) -> tuple[str, int]:
    """Host and port of ``origin``.

    Raises:
        ValueError: It is not plain HTTP.
    """
    parts = urlsplit(origin)
    if parts.scheme != "http" or parts.hostname is None:
        raise ValueError(f"{origin} needs transport='httpx'")
    return parts.hostname, parts.port or 80


def can_go_lean(url: str) -> bool:
    """Whether ``url`` is plain HTTP and the environment names no proxy for it."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    proxies = getproxies()
    return not ("http" in proxies or "all" in proxies) or bool(proxy_bypass(parts.hostname or ""))


def goes_lean(url: str, wanted: Literal["lean", "httpx"] | None) -> bool:
    """Whether to speak to ``url`` over a lean transport: where it is ``wanted``, or nothing is and it can.

    Raises:
        ValueError: It is wanted, and ``url`` is not plain HTTP.
    """
    if wanted == "lean" and not url.startswith("http:"):
        raise ValueError(f"the lean transport speaks plain HTTP, and not with {url!r}")
    return wanted == "lean" or (wanted is None and can_go_lean(url))
