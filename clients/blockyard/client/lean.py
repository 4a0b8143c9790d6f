"""The lean transport: HTTP over kept-alive connections of its own, with TLS or without."""

import os
import ssl
import threading
import time
from collections.abc import Sequence
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
        tls: For ``https://``; without it only ``http://`` is reached.
        max_body_bytes: Longer responses are refused.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._tls = tls
        self._max_body_bytes = max_body_bytes
        self._by_process: dict[int, _Connections] = {}
        self._is_closed = False

    def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`; also raises ValueError for ``https://`` where it has no TLS."""
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
        host, port, tls = lean_address(origin, self._tls)
        return Connection(host, port, deadline_s, tls=tls, max_body_bytes=self._max_body_bytes)

    def _give_back(self, ours: _Connections, origin: str, connection: Connection) -> None:
        with ours.lock:
            if connection.is_reusable and not self._is_closed:
                idle = ours.idle.setdefault(origin, [])
                if len(idle) < MAX_IDLE_CONNECTIONS:
                    idle.append(connection)
                    return
        connection.close()


def lean_address(origin: str, tls: ssl.SSLContext | None) -> tuple[str, int, ssl.SSLContext | None]:
    """Host and port of ``origin``, and ``tls`` where it is ``https://``.

    Raises:
        ValueError: It is, and there is no TLS.
    """
    parts = urlsplit(origin)
    if parts.hostname is None or parts.scheme not in ("http", "https"):
        raise ValueError(f"not the URL of a server: {origin!r}")
    if parts.scheme == "http":
        return parts.hostname, parts.port or 80, None
    if tls is None:
        raise ValueError(f"this transport was made without TLS, and does not reach {origin}")
    return parts.hostname, parts.port or 443, tls


def can_go_lean(url: str) -> bool:
    """Whether the environment names no proxy for ``url``."""
    parts, proxies = urlsplit(url), getproxies()
    return not (parts.scheme in proxies or "all" in proxies) or bool(proxy_bypass(parts.hostname or ""))


def goes_lean(urls: Sequence[str], wanted: Literal["lean", "httpx"] | None) -> bool:
    """Whether to speak to ``urls`` over a lean transport: if it is ``wanted``, or nothing is and it can."""
    return wanted == "lean" or (wanted is None and all(map(can_go_lean, urls)))
