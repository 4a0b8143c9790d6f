"""A kept-alive TCP connection that is waited for."""

import select
import socket
import ssl
import time

from blockyard.client.errors import ConnectionLost, TlsRefused
from blockyard.client.http1 import MAX_BODY_BYTES, ResponseReader
from blockyard.client.tls import is_refusal
from blockyard.client.wire import Response

_RECEIVE_BYTES = 65_536
_WAIT_PRECISION_S = 0.001
"""So much longer than allowed a wait may be: setting a socket's timeout anew is a system call."""


class Connection:
    """One TCP connection. Not thread-safe: one request at a time.

    Args:
        host: Name or address. All addresses of a name are tried, each for its share of the time.
        port: 1 to 65535.
        deadline_s: Until when to connect, as `time.monotonic` counts. Looking up a name takes what it takes.
        tls: To speak it; None for plain HTTP.
        max_body_bytes: Longer responses are refused.

    Attributes:
        authority: ``host:port``.

    Raises:
        ConnectionLost: Nobody answers there.
        TlsRefused: Either side does not trust the other.
    """

    __slots__ = ("_poll", "_reader", "_socket", "_wait_s", "authority")

    def __init__(
        self,
        host: str,
        port: int,
        deadline_s: float,
        *,
        tls: ssl.SSLContext | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._socket = _connect(host, port, deadline_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = _secured(self._socket, tls, host, deadline_s)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._reader = ResponseReader(max_body_bytes)
        self._wait_s = 0.0
        self.authority = authority_of(host, port)

    def close(self) -> None:
        """Close the socket. May be repeated."""
        self._socket.close()

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow."""
        return self._reader.can_follow

    def is_stale(self) -> bool:
        """Whether the peer has closed, or sent what nobody asked for, while the connection was idle."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._poll.poll(0))

    def exchange(self, request: bytes, deadline_s: float) -> Response:
        """Send ``request``, read its response to the end. After an error, close the connection.

        Args:
            request: From `blockyard.client.http1.write_request`.
            deadline_s: For all of it, as `time.monotonic` counts.

        Returns:
            The response. `is_reusable` says whether another request may follow.

        Raises:
            NothingArrived: The peer closed before the first byte of a response, not the connection's first.
            ConnectionLost: It closed otherwise, or the time ran out.
            TlsRefused: It does not trust this side, which it may say only now.
            UnexpectedReply: What came is not HTTP/1.1 as `ResponseReader` reads it.
        """
        response = None
        try:
            self._limit_wait(deadline_s)
            try:  # noqa: SIM105 - suppress() costs more than all else here but the system call
                self._socket.sendall(request)
            except BrokenPipeError:  # a body refused early: its reason may stand in the response
                pass
            while response is None:
                self._limit_wait(deadline_s)
                received = self._socket.recv(_RECEIVE_BYTES)
                if not received:
                    raise self._reader.closed(self.authority, "end of stream")
                response = self._reader.feed(received)
        except TimeoutError as error:
            raise ConnectionLost(f"no reply from {self.authority} in time") from error
        except OSError as error:
            raise lost(self._reader, self.authority, error) from error
        return response

    def _limit_wait(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if abs(self._wait_s - left_s) > _WAIT_PRECISION_S:
            self._socket.settimeout(left_s)
            self._wait_s = left_s


def lost(reader: ResponseReader, authority: str, why: Exception) -> ConnectionLost:
    """What it means that the connection of ``reader`` failed while a response was awaited."""
    if is_refusal(why):
        return TlsRefused(f"{authority} refused TLS: {why}")
    return reader.closed(authority, why)


def authority_of(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _secured(plain: socket.socket, tls: ssl.SSLContext, host: str, deadline_s: float) -> ssl.SSLSocket:
    """TLS over the connection ``plain``, which is closed where this fails."""
    try:
        plain.settimeout(max(0.001, deadline_s - time.monotonic()))
        return tls.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        plain.close()
        kind = TlsRefused if is_refusal(error) else ConnectionLost
        raise kind(f"no TLS with {host}: {error}") from error
    except BaseException:
        plain.close()
        raise


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
