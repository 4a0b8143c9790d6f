"""The least that a caller can do: a blocking socket, requests made before, replies read to their length."""

import re
import socket
from collections.abc import Sequence
from time import perf_counter
from typing import Self

READ_BYTES = 1 << 20
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class RawCaller:
    """One connection to ``port``."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def reply(self, request: bytes) -> bytes:
        """A reply to its end; it has to be a success."""
        self._socket.sendall(request)
        reply = self._socket.recv(READ_BYTES)
        while not is_whole(reply):
            reply += self._socket.recv(READ_BYTES)
        assert reply[9:12] == b"200", reply
        return reply

    def seconds(self, requests: Sequence[bytes]) -> float:
        """How long these take, one after the other."""
        start = perf_counter()
        for request in requests:
            self.reply(request)
        return perf_counter() - start


def is_whole(reply: bytes) -> bool:
    """Whether all of its body has come."""
    end = reply.find(b"\r\n\r\n")
    found = _LENGTH.search(reply, 0, end) if end > 0 else None
    return found is not None and len(reply) >= end + 4 + int(found[1])


def body_of(message: bytes) -> bytes:
    """A request's or a reply's body."""
    return message.partition(b"\r\n\r\n")[2]
