"""HTTP/1.1: uvicorn's protocol, with a bound on heads, the short path, and one timer a connection."""

import asyncio
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from blockyard.server.media import Answer
from blockyard.server.short_path import ShortCall, ShortPath

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers; and what stands behind a chunked body."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Waiting:
    """Stands where uvicorn keeps the request that it works on, while the answer to a call is not sent yet.

    ``response_complete``, ``disconnected`` and ``message_event`` are what the end of a connection looks at,
    ``keep_alive`` is set by a shutdown, and ``scope`` is read by ours.
    """

    __slots__ = ("disconnected", "keep_alive", "message_event", "response_complete", "scope")

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = True
        self.message_event = asyncio.Event()


class _Flow(FlowControl):
    """Reads no further while requests wait for their turn: else each answer would let in a thousand more."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """One connection.

    It ends where a request has a head of more than `MAX_HEAD_BYTES`, give or take one packet. The application
    has a `ShortPath` as its ``short_path``, or None: then all goes through ASGI.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._short_path: ShortPath | None = self.app.short_path
        self._is_in_message = self._is_in_head = False
        self._num_begun = self._num_head_bytes = self._num_trailer_bytes = 0
        self._has_body = False
        self._running: RequestResponseCycle | None = None
        self._call: ShortCall | None = None
        self._body = b""
        self._waiting = Waiting()
        self._idle_since_s: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The connection is there."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to stay open
        """The caller sends no more: if it waits for the answer to a call, it gets that first."""
        if self._waiting.response_complete or self.transport.get_extra_info("sslcontext"):
            return False  # TLS has no half of a connection to leave open
        self._waiting.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """The parser has met the beginning of a request."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_in_message = self._is_in_head = True
        self._num_begun += 1
        self._num_head_bytes = self._num_trailer_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has met a header. What stands behind a body is none."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser has met the end of its headers."""
        self._is_in_head = False
        if self._short_path is not None and self._is_ordinary():
            self._call = self._short_path.find(self.url)
            self._body = b""
        if self._call is None:
            self._take_long_path()

    def on_body(self, body: bytes) -> None:
        """The parser has met a part of its body."""
        self._has_body = True
        if self._call is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """The parser has met its end."""
        self._is_in_message = False
        call, self._call = self._call, None
        if call is not None:
            assert self._short_path is not None, "it has found the call"
            if len(self._body) <= self._short_path.max_body_bytes:
                self._answer(self._short_path, call)
                return
            self._take_long_path()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        was_in_message, self._num_begun, self._has_body = self._is_in_message, 0, False
        super().data_received(data)
        if self._call is not None:  # the rest of its body comes later, if it comes
            self._call = None
            self._take_long_path()
        if self._is_in_head and self._num_begun == (0 if was_in_message else 1):  # else it began inside
            self._num_head_bytes += len(data)
        elif self._is_in_message and not self._is_in_head and not self._has_body:
            self._num_trailer_bytes += len(data)
        if (
            max(self._num_head_bytes, self._num_trailer_bytes) > MAX_HEAD_BYTES
            and not self.transport.is_closing()
        ):
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    @property
    def _is_busy(self) -> bool:
        """Whether a request before this one is not answered yet."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _is_ordinary(self) -> bool:
        """Whether it is a POST of HTTP/1.1 on a connection that stays open, with nothing before it."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and not self._is_busy
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    def _take_long_path(self) -> None:
        """Begin the request as uvicorn does, with as much of its body as there is."""
        url, headers, expects_go_ahead = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects_go_ahead
        self.headers.extend(headers)
        is_next = not self._is_busy
        super().on_headers_complete()
        if is_next:
            self._running = self.cycle
        body, self._body = self._body, b""
        if body:
            super().on_body(body)

    def _answer(self, short_path: ShortPath, call: ShortCall) -> None:
        visit, answer = short_path.answer(call, self.headers, self._body)
        self._body = b""
        self._waiting.response_complete = False
        self.cycle = self._waiting  # type: ignore[assignment]
        short_path.post(self._send, visit, answer)

    def _send(self, answer: Answer) -> None:
        self._waiting.response_complete = True
        if self.transport.is_closing():
            return
        assert self._short_path is not None, "it has made the answer"
        keep_alive = self._waiting.keep_alive
        self.transport.write(
            b"".join(
                (
                    STATUS_LINE[answer.status],
                    self._short_path.lines_of(self.server_state.default_headers),
                    answer.head,
                    b"\r\n" if keep_alive else b"connection: close\r\n\r\n",
                    answer.body,
                )
            )
        )
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    # uvicorn sets a timer anew at each response, which takes longer than many a call.

    def on_response_complete(self) -> None:
        """A request is answered: begin the next one, if it is there; else the connection is idle."""
        if self.pipeline or self.transport.is_closing():
            self._running = self.pipeline[-1][0] if self.pipeline else None
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch_idleness(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: the request that runs is told, and those behind it are forgotten."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._running = None
        self.cycle = None  # type: ignore[assignment]  # it knows this connection
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since_s = None

    def _watch_idleness(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """End the connection if it has been idle for long; else look again when it may have been."""
        self.timeout_keep_alive_task = None
        if self._idle_since_s is None:
            return  # the next response begins it anew
        idle_s = self.loop.time() - self._idle_since_s
        if idle_s >= self.timeout_keep_alive:
            super().timeout_keep_alive_handler()
        else:
            self._watch_idleness(self.timeout_keep_alive - idle_s)
