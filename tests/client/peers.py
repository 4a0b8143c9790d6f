"""Small real servers on sockets that answer as a test says: late, wrongly, in pieces, or not at all."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived. Header names are lower-case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer: TypeAlias = bytes | Callable[[Received], bytes]
"""What to send back. Nothing at all (``b""``) closes the connection."""

DROP: Answer = b""

STATS: dict[str, Any] = {
    "epoch": 1,
    "num_blocks": 8,
    "num_free_blocks": 7,
    "num_held_blocks": 0,
    "num_cached_blocks": 0,
    "usage": 0.0,
    "hit_rate": None,
    "eviction": "lru",
    "eviction_weight": None,
    "num_sequences": 0,
    "num_leases": 0,
    "num_pins": 0,
    "num_soft_pinned_blocks": 0,
    "num_hard_pinned_blocks": 0,
    "num_workers": 0,
    "num_lost_workers": 0,
    "counters": {},
}
"""A pool's figures, as a server answers them."""


@dataclass(slots=True)
class Peer:
    """A listening server, what it received, and how many connections it took."""

    url: str
    received: list[Received] = field(default_factory=list)
    num_connections: int = 0

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


def response(status: int, body: Any = None, **headers: str) -> bytes:
    """A response with a JSON body."""
    data = b"" if body is None else json.dumps(body).encode()
    named = {"content-type": "application/json", "content-length": str(len(data)), **headers}
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def problem(status: int, code: str, **figures: Any) -> bytes:
    """A refusal."""
    return response(
        status, {"code": code, "status": status, "title": code, "detail": f"why {code}", **figures}
    )


def owned(body: Any, ownership: int, status: int = 200) -> bytes:
    """A node's response about a pool that it owns as the how manieth."""
    return response(status, body, **{"blockyard-ownership": str(ownership)})


def elsewhere(url: str, ownership: int) -> Callable[[Received], bytes]:
    """A node's response about a pool that the node at ``url`` owns."""

    def answer(request: Received) -> bytes:
        location = url + request.target
        figures = {"pool": "p", "node": "owner", "url": location, "ownership": ownership}
        document = {"code": "pool_elsewhere", "status": 307, "detail": "elsewhere", **figures}
        return response(307, document, location=location)

    return answer


def forward(url: str) -> Callable[[Received], bytes]:
    """Answers what the server at ``url`` answers."""
    parts = urlsplit(url)

    def answer(request: Received) -> bytes:
        upstream = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            upstream.request(request.method, request.target, request.body, request.headers)
            reply = upstream.getresponse()
            body = reply.read()
        finally:
            upstream.close()
        kind = reply.getheader("content-type", "")
        head = (
            f"HTTP/1.1 {reply.status} Status\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    return answer


def swallow(answer: Callable[[Received], bytes], ending: str, times: int = 1) -> Callable[[Received], bytes]:
    """Lets requests through, and drops the response of the first ``times`` whose target ends so."""
    left = iter(range(times))

    def swallowing(request: Received) -> bytes:
        reply = answer(request)
        if request.target.endswith(ending) and next(left, None) is not None:
            return b""
        return reply

    return swallowing


def silence(until: threading.Event) -> Callable[[Received], bytes]:
    """Says nothing until a test is over, then closes the connection."""

    def waiting(_: Received) -> bytes:
        until.wait(30)
        return b""

    return waiting


@contextmanager
def peer(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """Answers its n-th request with the n-th of ``answers``, and every later one with the last."""
    listener = socket.create_server(("127.0.0.1", 0))
    scheme = "http" if tls is None else "https"
    self = Peer(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []
    lock = threading.Lock()

    def serve(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        with connection, stream, suppress(OSError):
            while (request := _read_request(stream)) is not None:
                with lock:
                    self.received.append(request)
                    answer = answers[min(len(self.received), len(answers)) - 1]
                reply = answer if isinstance(answer, bytes) else answer(request)
                if not reply:
                    return
                connection.sendall(reply)
                if b"connection: close" in reply.lower():
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                self.num_connections += 1
                connections.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield self
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in [acceptor, *threads]:
            thread.join(timeout=5)


def _read_request(stream: Any) -> Received | None:
    first = stream.readline()
    if not first:
        return None
    method, target, _ = first.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return Received(method, target, headers, stream.read(int(headers.get("content-length", 0))))
