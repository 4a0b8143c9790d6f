"""HTTP/1.1 as bytes, without a socket: just what a blockyard call needs, read strictly.

A response is a status line, headers of at most `MAX_HEAD_BYTES`, and a body of a stated ``Content-Length`` or
in chunks. Anything else, above all a length that two headers state differently, is refused and the connection
closed: what follows on it could not be told from the next response.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias, cast

from blockyard.client.errors import ConnectionLost, NothingArrived, UnexpectedReply
from blockyard.client.wire import Request, Response

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 256 * 1024 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?")
_HEADER_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LENGTH = re.compile("[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_HEAD_END = b"\r\n\r\n"
_NO_BODY = frozenset({204, 304})


def write_request(request: Request, authority: str) -> bytes:
    """``request`` as it is sent to ``authority``, ``host:port``.

    Raises:
        ValueError: A header or the target holds a line break.
    """
    body, headers = request.body, request.headers
    head = f"{request.method} {request.target} HTTP/1.1\r\nHost: {authority}\r\n"
    for name, value in headers.items():
        head += f"{name}: {value}\r\n"
    num_lines = 3 + len(headers)
    if body or request.method != "GET":
        head += f"Content-Length: {len(body)}\r\n"
        num_lines += 1
    head += "\r\n"
    if head.count("\n") != num_lines or head.count("\r") != num_lines:
        raise ValueError("a header or the path holds a line break")
    return head.encode("latin-1") + body


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before a response's body.

    Attributes:
        status: From 100 to 599; below 200 the response proper follows.
        headers: By lower-case name.
        num_body_bytes: None for a body in chunks.
        keeps_alive: Another response may follow on the connection.
    """

    status: int
    headers: Mapping[str, str]
    num_body_bytes: int | None
    keeps_alive: bool


@lru_cache(maxsize=128)  # a server's heads differ in little but the second and the length
def read_head(head: bytes) -> Head:
    """A response's head, without the empty line that ends it.

    Raises:
        UnexpectedReply: It is not one, or does not say surely where its body ends.
    """
    first, *lines = head.split(b"\r\n")
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise UnexpectedReply(f"not a status line of HTTP/1.1: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        raw_name, colon, raw_value = line.partition(b":")
        if not colon or _HEADER_NAME.fullmatch(raw_name) is None:
            raise UnexpectedReply(f"not a header: {line[:80]!r}")
        name, value = raw_name.decode("ascii").lower(), raw_value.strip(b" \t").decode("latin-1")
        if name in headers and name in ("content-length", "transfer-encoding"):
            raise UnexpectedReply(f"{name} stands twice")
        headers[name] = value
    status = int(match[2])
    keeps_alive = match[1] == b"1" and "close" not in headers.get("connection", "").lower()
    return Head(status, MappingProxyType(headers), _num_body_bytes(status, headers), keeps_alive)


def _num_body_bytes(status: int, headers: Mapping[str, str]) -> int | None:
    if status < 200 or status in _NO_BODY:
        return 0
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise UnexpectedReply(f"transfer-encoding {coding!r}, content-length {length!r}")
        return None
    if length is None or _LENGTH.fullmatch(length) is None:
        raise UnexpectedReply(f"content-length {length!r}: none, or no number")
    return int(length)


Reading: TypeAlias = Generator[None, None, Response]
"""A response that is read as far as the bytes go, and then waits for more."""


class ResponseReader:
    """Reads the responses of one connection, one after the other, from their bytes as they arrive.

    Args:
        max_body_bytes: Longer responses are refused.

    Attributes:
        can_follow: Another response may follow: the last was read to its end, which was not the connection's,
            and nothing stood behind it. Also before the first.
    """

    __slots__ = ("_buffer", "_has_read", "_max_body_bytes", "_reading", "can_follow")

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._reading: Reading | None = None
        self._has_read = False
        self.can_follow = True

    def feed(self, received: bytes) -> Response | None:
        """Take in what has arrived, at least one byte.

        Returns:
            The response, if this was its end. Bytes behind it are no other's: see ``can_follow``.

        Raises:
            UnexpectedReply: What came is not HTTP/1.1 as this module reads it.
        """
        if self._reading is None:
            response = self._whole(received)
            if response is not None:
                return response
            self._reading = self._read()
        self._buffer += received
        try:
            next(self._reading)
        except StopIteration as done:
            response = cast("Response", done.value)
        else:
            return None
        self._reading = None
        self._has_read = True
        self.can_follow &= not self._buffer
        return response

    def closed(self, peer: str, why: object) -> ConnectionLost:
        """What it means that ``peer`` has closed now, while a response was awaited.

        Returns:
            `NothingArrived` between two responses, else `ConnectionLost`.
        """
        is_between = self._has_read and self._reading is None
        return (NothingArrived if is_between else ConnectionLost)(f"{peer} closed the connection: {why}")

    def _whole(self, received: bytes) -> Response | None:
        """The response that ``received`` is from its first to its last byte, as most are; else None."""
        end = received.find(_HEAD_END)
        if end < 0:
            return None
        head, start = read_head(received[:end]), end + len(_HEAD_END)
        size = len(received) - start
        if head.status < 200 or head.num_body_bytes != size or size > self._max_body_bytes:
            return None
        self._has_read = True
        self.can_follow = head.keeps_alive
        return Response(head.status, head.headers, received[start:])

    def _read(self) -> Reading:
        self.can_follow = False
        while True:
            head = read_head((yield from self._take_until(_HEAD_END)))
            if head.status >= 200:  # else interim: the response proper follows
                break
        size, limit = head.num_body_bytes, self._max_body_bytes
        if size is None:
            body = yield from self._read_chunks()
        elif size > limit:
            raise UnexpectedReply(f"content-length {size}: over {limit}")
        else:
            body = yield from self._take(size)
        self.can_follow = head.keeps_alive
        return Response(head.status, head.headers, body)

    def _read_chunks(self) -> Generator[None, None, bytes]:
        body = bytearray()
        while True:
            line = yield from self._take_until(b"\r\n")
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None or len(body) + int(match[1], 16) > self._max_body_bytes:
                raise UnexpectedReply(f"not the size of a chunk, or too long a body: {line[:80]!r}")
            size = int(match[1], 16)
            if size == 0:
                break
            body += yield from self._take(size)
            if (yield from self._take(2)) != b"\r\n":
                raise UnexpectedReply("a chunk is longer than it says")
        num_trailer_bytes = 0
        while trailer := (yield from self._take_until(b"\r\n")):
            num_trailer_bytes += len(trailer)
            if num_trailer_bytes > MAX_HEAD_BYTES:
                raise UnexpectedReply("the trailers are too long")
        return bytes(body)

    def _take_until(self, end: bytes) -> Generator[None, None, bytes]:
        start = 0
        while (at := self._buffer.find(end, start)) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise UnexpectedReply(f"over {MAX_HEAD_BYTES} bytes without an end")
            start = max(0, len(self._buffer) - len(end) + 1)
            yield
        taken = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return taken

    def _take(self, num_bytes: int) -> Generator[None, None, bytes]:
        while len(self._buffer) < num_bytes:
            yield
        taken = bytes(self._buffer[:num_bytes])
        del self._buffer[:num_bytes]
        return taken
