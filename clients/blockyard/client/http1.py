"""HTTP/1.1 over one kept-alive TCP connection: just what a blockyard call needs, read strictly.

A response is a status line, headers of at most `MAX_HEAD_BYTES`, and a body of a stated ``Content-Length`` or
in chunks. Anything else, above all a length that two headers state differently, is refused and the connection
closed: what follows on it could not be told from the next response.
"""

import re
import select
import socket
import time
from contextlib import suppress

from blockyard.client.errors import ConnectionLost, NothingArrived, UnexpectedReply
from blockyard.client.wire import Request, Response

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 256 * 1024 * 1024
_RECEIVE_BYTES = 65_536
_WAIT_PRECISION_S = 0.001
"""So much longer than allowed a wait may be: setting a socket's timeout anew is a system call."""
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?")
_HEADER_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_NO_BODY = frozenset({204, 304})


class Connection:
    """One TCP connection. Not thread-safe: one request at a time.

    Args:
        host: Name or address. All addresses of a name are tried, each for its share of the time.
        port: 1 to 65535.
        deadline_s: Until when to connect, as `time.monotonic` counts. Looking up a name takes what it takes.
        max_body_bytes: Longer responses are refused.

    Raises:
        ConnectionLost: Nobody answers there.
    """

    __slots__ = (
        "_authority",
        "_buffer",
        "_deadline_s",
        "_has_begun",
        "_is_kept",
        "_max_body_bytes",
        "_poll",
        "_socket",
        "_spin_s",
        "_wait_s",
        "is_reusable",
    )

    def __init__(
        self, host: str, port: int, deadline_s: float, *, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._socket = _connect(host, port, deadline_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._deadline_s = deadline_s
        self._wait_s = 0.0
        self._spin_s = 0.0
        self._has_begun = False
        self._is_kept = False
        self.is_reusable = True

    def close(self) -> None:
        """Close the socket. May be repeated."""
        self._socket.close()

    def is_stale(self) -> bool:
        """Whether the peer has closed, or sent what nobody asked for, while the connection was idle."""
        return bool(self._poll.poll(0))

    def exchange(self, request: Request, deadline_s: float, *, spin_s: float = 0.0) -> Response:
        """Send ``request``, read its response to the end.

        Args:
            request: Its origin is this connection's.
            deadline_s: For all of it, as `time.monotonic` counts.
            spin_s: How long to look for bytes, each time there are none, before sleeping until they come.

        Returns:
            The response. `is_reusable` says whether another request may follow.

        Raises:
            NothingArrived: The peer closed before the first byte of a response, not the connection's first.
            ConnectionLost: It closed otherwise, or the time ran out.
            UnexpectedReply: What came is not HTTP/1.1 as this module reads it.
            ValueError: A header or the target holds a line break.
        """
        head = self._head(request)
        self.is_reusable = False  # until the response has been read to its end
        self._has_begun = False
        self._deadline_s = deadline_s
        self._spin_s = spin_s
        try:
            self._limit_wait()
            with suppress(BrokenPipeError):  # a body refused early: its reason may stand in the response
                self._socket.sendall(head + request.body)
            response, keeps_alive = self._response()
        except TimeoutError as error:
            raise ConnectionLost(f"no reply from {self._authority} in time") from error
        except OSError as error:
            lost = NothingArrived if self._is_kept and not self._has_begun else ConnectionLost
            raise lost(f"{self._authority} closed the connection: {error}") from error
        self.is_reusable = keeps_alive and not self._buffer
        self._is_kept = True
        return response

    def _head(self, request: Request) -> bytes:
        lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        if request.body or request.method != "GET":
            lines.append(f"Content-Length: {len(request.body)}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError("a header or the path holds a line break")
        return head.encode("latin-1") + b"\r\n\r\n"

    def _response(self) -> tuple[Response, bool]:
        while True:
            minor, status, headers = self._read_head()
            if status >= 200:  # else interim: the response proper follows
                break
        keeps_alive = minor == b"1" and "close" not in headers.get("connection", "").lower()
        return Response(status, headers, self._read_body(status, headers)), keeps_alive

    def _read_head(self) -> tuple[bytes, int, dict[str, str]]:
        first, *lines = self._take_until(b"\r\n\r\n", MAX_HEAD_BYTES).split(b"\r\n")
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
        return match[1], int(match[2]), headers

    def _read_body(self, status: int, headers: dict[str, str]) -> bytes:
        if status in _NO_BODY:
            return b""
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise UnexpectedReply(f"transfer-encoding {coding!r}, content-length {length!r}")
            return self._read_chunks()
        limit = self._max_body_bytes
        if length is None or not (length.isascii() and length.isdigit()) or int(length) > limit:
            raise UnexpectedReply(f"content-length {length!r}: none, no number, or over {limit}")
        return self._take(int(length))

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self._take_until(b"\r\n", MAX_HEAD_BYTES)
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None or len(body) + int(match[1], 16) > self._max_body_bytes:
                raise UnexpectedReply(f"not the size of a chunk, or too long a body: {line[:80]!r}")
            size = int(match[1], 16)
            if size == 0:
                break
            body += self._take(size)
            if self._take(2) != b"\r\n":
                raise UnexpectedReply("a chunk is longer than it says")
        num_trailer_bytes = 0
        while trailer := self._take_until(b"\r\n", MAX_HEAD_BYTES):
            num_trailer_bytes += len(trailer)
            if num_trailer_bytes > MAX_HEAD_BYTES:
                raise UnexpectedReply("the trailers are too long")
        return bytes(body)

    def _take_until(self, end: bytes, max_bytes: int) -> bytes:
        start = 0
        while (at := self._buffer.find(end, start)) < 0:
            if len(self._buffer) > max_bytes:
                raise UnexpectedReply(f"over {max_bytes} bytes without an end")
            start = max(0, len(self._buffer) - len(end) + 1)
            self._receive()
        taken = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return taken

    def _take(self, num_bytes: int) -> bytes:
        while len(self._buffer) < num_bytes:
            self._receive()
        taken = bytes(self._buffer[:num_bytes])
        del self._buffer[:num_bytes]
        return taken

    def _receive(self) -> None:
        if self._spin_s:
            self._spin()
        self._limit_wait()
        received = self._socket.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError("end of stream")
        self._has_begun = True
        self._buffer += received

    def _spin(self) -> None:
        until_s = time.monotonic() + self._spin_s
        while not self._poll.poll(0) and time.monotonic() < until_s:
            pass

    def _limit_wait(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if abs(self._wait_s - left_s) > _WAIT_PRECISION_S:
            self._socket.settimeout(left_s)
            self._wait_s = left_s


def _connect(host: str, port: int, deadline_s: float) -> socket.socket:
    why: OSError = TimeoutError("no time is left")
    try:
        addresses = [found[4] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for num_tried, address in enumerate(addresses):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            try:
                share_s = left_s / (len(addresses) - num_tried)
                return socket.create_connection((str(address[0]), port), share_s)
            except OSError as error:
                why = error
    except OSError as error:
        why = error
    raise ConnectionLost(f"cannot connect to {host}:{port}: {why}") from why
