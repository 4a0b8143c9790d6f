"""The lean transport: plain HTTP over kept-alive connections of its own."""

import os
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from blockyard.client.http1 import MAX_BODY_BYTES, Connection
from blockyard.client.wire import Request, Response

MAX_IDLE_CONNECTIONS = 32
"""Kept open per server; more may be in use at once."""

SPIN_S = 0.0003
"""How long a caller that is alone looks for its reply before it sleeps: most are there by then, and waking a
processor that went to sleep costs more. Measured with one caller and its server on two cores: 0.29 ms a call
in place of 0.40. Several callers at once, or a single processor, do not spin."""


@dataclass(slots=True)
class _Idle:
    """One process's idle connections by origin, its exchanges under way, and the lock over them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_origin: dict[str, list[Connection]] = field(default_factory=dict)
    num_exchanges: int = 0

    def take_all(self) -> list[Connection]:
        taken, self.by_origin = self.by_origin, {}
        return [connection for connections in taken.values() for connection in connections]


class LeanTransport:
    """A Transport of own sockets. Thread-safe; a forked child opens connections of its own.

    Args:
        max_body_bytes: Longer responses are refused.
    """

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_body_bytes = max_body_bytes
        self._idle_by_process: dict[int, _Idle] = {}
        self._is_closed = False
        self._may_spin = _num_processors() > 1

    def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`; also raises ValueError where the origin is not plain HTTP."""
        deadline_s = time.monotonic() + timeout_s
        idle = self._idle()
        with idle.lock:
            idle.num_exchanges += 1
            is_alone = idle.num_exchanges == 1
        try:
            connection = self._take(idle, request.origin) or self._connect(request.origin, deadline_s)
            try:
                response = connection.exchange(
                    request, deadline_s, spin_s=SPIN_S if is_alone and self._may_spin else 0.0
                )
            except BaseException:
                connection.close()
                raise
            self._give_back(idle, request.origin, connection)
        finally:
            with idle.lock:
                idle.num_exchanges -= 1
        return response

    def close(self) -> None:
        """Close all idle connections; those in use close after their response."""
        idle = self._idle()
        with idle.lock:
            self._is_closed = True
            connections = idle.take_all()
        for connection in connections:
            connection.close()

    def _idle(self) -> _Idle:
        process_id = os.getpid()
        idle = self._idle_by_process.get(process_id)
        if idle is None:
            # The first call, or the first after a fork. No thread of a child can come by the parent's
            # connections: they stand under another key. Its lock may be held for ever, so nobody asks for it.
            idle = self._idle_by_process.setdefault(process_id, _Idle())
            for other in self._idle_by_process.keys() - {process_id}:
                inherited = self._idle_by_process.pop(other, None)
                for connection in inherited.take_all() if inherited else ():
                    connection.close()  # our descriptor; the parent's stays open
        return idle

    def _take(self, idle: _Idle, origin: str) -> Connection | None:
        while True:
            with idle.lock:
                if self._is_closed:
                    raise RuntimeError("the client is closed")
                connections = idle.by_origin.get(origin)
                if not connections:
                    return None
                connection = connections.pop()  # the one used last: the least likely to be stale
            if not connection.is_stale():
                return connection
            connection.close()

    def _connect(self, origin: str, deadline_s: float) -> Connection:
        parts = urlsplit(origin)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{origin} needs transport='httpx'")
        return Connection(parts.hostname, parts.port or 80, deadline_s, max_body_bytes=self._max_body_bytes)

    def _give_back(self, idle: _Idle, origin: str, connection: Connection) -> None:
        if connection.is_reusable:
            with idle.lock:
                connections = idle.by_origin.setdefault(origin, [])
                if not self._is_closed and len(connections) < MAX_IDLE_CONNECTIONS:
                    connections.append(connection)
                    return
        connection.close()


def _num_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_go_lean(url: str) -> bool:
    """Whether ``url`` is plain HTTP and the environment names no proxy for it."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    proxies = getproxies()
    return not ("http" in proxies or "all" in proxies) or bool(proxy_bypass(parts.hostname or ""))
