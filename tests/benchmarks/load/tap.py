"""The bytes that a client sends: taken down between it and its server."""

import re
import secrets
import socket
import threading
from dataclasses import dataclass, field
from typing import Self

READ_BYTES = 1 << 20
_KEY = re.compile(rb"(idempotency-key: *)([0-9a-f]+)", re.IGNORECASE)


@dataclass(slots=True)
class Exchanges:
    """Requests and their replies, in order; each was sent and answered before the next."""

    requests: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)


class Tap:
    """Listens, and passes on to ``port`` what comes, over as many connections as are made.

    Args:
        port: The server's.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.taken = Exchanges()
        self._lock = threading.Lock()
        self._was_request = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            for source, target, is_request in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, target, is_request), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        with source:
            while data := source.recv(READ_BYTES):
                with self._lock:
                    kept = self.taken.requests if is_request else self.taken.replies
                    if self._was_request is not is_request:
                        kept.append(data)
                    else:
                        kept[-1] += data
                    self._was_request = is_request
                target.sendall(data)


def with_fresh_key(request: bytes) -> bytes:
    """The same request under another idempotency key, so that it is done and not remembered."""
    return _KEY.sub(lambda found: found[1] + secrets.token_hex(len(found[2]) // 2).encode(), request)
