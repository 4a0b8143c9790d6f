"""A kept-alive TCP connection that is awaited, on the event loop where it was made."""

import asyncio
import select
import socket
import ssl
import time
from typing import cast

from blockyard.client.connection import authority_of, lost
from blockyard.client.errors import ConnectionLost, TlsRefused, UnexpectedReply
from blockyard.client.http1 import MAX_BODY_BYTES, ResponseReader
from blockyard.client.tls import is_refusal
from blockyard.client.wire import Response
from blockyard.core.errors import BlockyardError


class AsyncConnection(asyncio.Protocol):
    """One TCP connection, one request at a time. From `connect`.

    Args:
        authority: ``host:port``.
        max_body_bytes: Longer responses are refused.

    Attributes:
        authority: As given.
    """

    def __init__(self, authority: str, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.authority = authority
        self._loop = asyncio.get_running_loop()
        self._reader = ResponseReader(max_body_bytes)
        self._poll = select.poll()
        self._transport: asyncio.Transport | None = None
        self._lost = self._loop.create_future()
        self._response: asyncio.Future[Response] | None = None
        self._deadline_s = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = 0.0

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow."""
        return self._reader.can_follow and self._is_open()

    def is_stale(self) -> bool:
        """Whether the peer has closed, or sent what nobody asked for, while the connection was idle."""
        return not self._is_open() or bool(self._poll.poll(0))

    async def exchange(self, request: bytes, deadline_s: float) -> Response:
        """Send ``request``, read its response to the end. After an error or if cancelled, close it.

        Args:
            request: From `blockyard.client.http1.write_request`.
            deadline_s: For all of it, as `time.monotonic` counts.

        Returns:
            The response. `is_reusable` says whether another request may follow.

        Raises:
            NothingArrived: The peer closed before the first byte of a response, not the connection's first.
            ConnectionLost: It closed otherwise.
            TimeoutError: The time ran out.
            UnexpectedReply: What came is not HTTP/1.1 as `ResponseReader` reads it.
        """
        if self._transport is None:
            raise self._reader.closed(self.authority, "before it was asked")
        self._response = self._loop.create_future()
        self._deadline_s = deadline_s
        if self._alarm is None or deadline_s < self._alarm_s:
            self._set_alarm()
        self._transport.write(request)
        try:
            return await self._response
        finally:
            self._response = None

    def close(self) -> None:
        """Close it at once. May be repeated."""
        if self._transport is not None:
            self._transport.abort()
        if self._alarm is not None:
            self._alarm.cancel()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await self._lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # which not every loop's own is derived from
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        if self._response is None or self._response.done():
            self.close()  # nobody asked for it
            return
        try:
            response = self._reader.feed(data)
        except UnexpectedReply as error:
            self._fail(error)
        else:
            if response is not None:
                self._response.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self._transport = None
        if exc is None:
            self._fail(self._reader.closed(self.authority, "end of stream"))
        else:
            self._fail(lost(self._reader, self.authority, exc))
        if not self._lost.done():
            self._lost.set_result(None)
        self.close()

    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _fail(self, error: BlockyardError | TimeoutError) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)

    def _set_alarm(self) -> None:
        """One timer for many exchanges, each much shorter: it looks at the deadline when it goes off."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = self._deadline_s
        self._alarm = self._loop.call_later(max(0.0, self._deadline_s - time.monotonic()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._response is None:
            return
        if time.monotonic() < self._deadline_s:
            self._set_alarm()
        else:
            self._fail(TimeoutError())


async def connect(
    host: str, port: int, deadline_s: float, *, tls: ssl.SSLContext | None, max_body_bytes: int
) -> AsyncConnection:
    """A connection to ``host``. All addresses of a name are tried, each for its share of the time.

    Args:
        host: Name or address.
        port: 1 to 65535.
        deadline_s: Until when, as `time.monotonic` counts.
        tls: To speak it; None for plain HTTP.
        max_body_bytes: Longer responses are refused.

    Raises:
        ConnectionLost: Nobody answers there.
        TlsRefused: Either side does not trust the other.
    """
    name = None if tls is None else host
    loop = asyncio.get_running_loop()

    def made() -> AsyncConnection:
        return AsyncConnection(authority_of(host, port), max_body_bytes=max_body_bytes)

    why: OSError = TimeoutError("no time is left")
    try:
        async with asyncio.timeout(deadline_s - time.monotonic()):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for num_tried, (*_, address) in enumerate(found):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s / (len(found) - num_tried)):
                    opening = loop.create_connection(
                        made, str(address[0]), port, ssl=tls, server_hostname=name
                    )
                    return (await opening)[1]
            except OSError as error:
                if is_refusal(error):
                    raise TlsRefused(f"no TLS with {host}: {error}") from error
                why = error
    except OSError as error:
        why = error
    raise ConnectionLost(f"cannot connect to {host}:{port}: {str(why) or type(why).__name__}") from why
