"""HTTP/1.1: uvicorn's protocol, with bounds on heads and connections, the short path, and one timer each."""

import asyncio
from collections.abc import Sized
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from blockyard.core.errors import BlockyardError, HeadTooLarge, Overloaded, RequestTimeout
from blockyard.server.connection_timer import ConnectionLimits, ConnectionTimer
from blockyard.server.gate import PROBES
from blockyard.server.guard import ABORT
from blockyard.server.media import Answer, header_lines, render_error, render_problem
from blockyard.server.problems import http_problem
from blockyard.server.short_path import ShortCall, ShortPath

NUM_SPARE_CONNECTIONS = 64
"""Connections beyond the bound that are heard out: a probe is answered on them, and nothing else."""

RETRY_AFTER_MS = 1_000
"""When a caller that is a connection too many may find room."""

_PROBES = tuple(path.encode() for path in PROBES)


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

    The application has its `ConnectionLimits` as ``connection_limits``: the connection ends where a head is
    too large, give or take one packet, or late, and where it was idle for long. It has a `ShortPath` as
    ``short_path``, or None: then all goes through ASGI.
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
        self._limits: ConnectionLimits = self.app.connection_limits
        self._timer = ConnectionTimer(self.loop, self._late)
        self._is_head_timed = self._may_be_too_large = self._is_spare = False
        self._fault: BlockyardError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The connection is there."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        num_beyond = len(self.connections) - self._limits.max_connections
        self._is_spare = num_beyond > 0
        if num_beyond > NUM_SPARE_CONNECTIONS:
            self._refuse(self._one_too_many())
        else:
            self._timer.expect(self._limits.head_timeout_s)

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
        self._is_head_timed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has met a header. What stands behind a body is none."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser has met the end of its headers."""
        if self._may_be_too_large or self._is_spare:
            self._check_head()
        self._is_in_head = False
        self._timer.rest()
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
            if len(self._body) <= self._short_path.max_body_bytes and self._answer(self._short_path, call):
                return
            self._take_long_path()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        was_in_message, self._num_begun, self._has_body = self._is_in_message, 0, False
        self._may_be_too_large = len(data) > self._limits.max_head_bytes
        super().data_received(data)
        if self._call is not None:  # the rest of its body comes later, if it comes
            self._call = None
            self._take_long_path()
        if self._is_in_head and self._num_begun == (0 if was_in_message else 1):  # else it began inside
            self._num_head_bytes += len(data)
        elif self._is_in_message and not self._is_in_head and not self._has_body:
            self._num_trailer_bytes += len(data)
        if max(self._num_head_bytes, self._num_trailer_bytes) > self._limits.max_head_bytes:
            self._refuse(HeadTooLarge.of(self._limits.max_head_bytes))
        elif self._is_in_head and not self._is_head_timed:
            self._is_head_timed = True
            self._timer.expect(self._limits.head_timeout_s)

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
        self.scope["extensions"] = {ABORT: {"now": self.transport.abort}}
        is_next = not self._is_busy
        super().on_headers_complete()
        if self._is_spare:
            self.cycle.keep_alive = False
        if is_next:
            self._running = self.cycle
        body, self._body = self._body, b""
        if body:
            super().on_body(body)

    def _answer(self, short_path: ShortPath, call: ShortCall) -> bool:
        """Do ``call``; whether it is done, and need not wait."""
        answered = short_path.answer(call, self.headers, self._body)
        if answered is None:
            return False
        self._body = b""
        self._waiting.response_complete = False
        self.cycle = self._waiting  # type: ignore[assignment]
        short_path.post(self._send, *answered)
        return True

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

    def _check_head(self) -> None:
        """Refuse the request whose head is there, by an exception that ends the parser's work.

        Raises:
            BlockyardError: It is kept for `send_400_response`, as which the parser's failure arrives.
        """
        if self._may_be_too_large:
            num_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if num_bytes > self._limits.max_head_bytes:
                self._fault = HeadTooLarge.of(self._limits.max_head_bytes)
        if self._is_spare and self.url not in _PROBES:
            self._fault = self._one_too_many()
        if self._fault is not None:
            raise self._fault

    def _one_too_many(self) -> Overloaded:
        return Overloaded(
            f"{self._limits.max_connections} connections are open already (--max-connections): close some",
            {"retry_after_ms": RETRY_AFTER_MS},
        )

    def send_400_response(self, msg: str) -> None:
        """The parser has failed: by a fault that we found, or since this is no HTTP."""
        self._refuse(self._fault or render_problem(http_problem(HTTPStatus.BAD_REQUEST, msg)))

    def _refuse(self, why: BlockyardError | Answer) -> None:
        """End the connection, and say why where that cannot be taken for the answer to another request."""
        if self.transport.is_closing():
            return
        if self._may_answer:
            answer = render_error(why) if isinstance(why, BlockyardError) else why
            self.transport.write(
                STATUS_LINE[answer.status]
                + header_lines(self.server_state.default_headers)
                + answer.head
                + b"connection: close\r\n\r\n"
                + answer.body
            )
        self._close()

    @property
    def _may_answer(self) -> bool:
        """Whether what is sent now would be the answer to what is being received."""
        if not self._is_busy:
            return True
        is_in_body = self._is_in_message and not self._is_in_head
        return is_in_body and self.cycle is self._running and not self.cycle.response_started

    def _close(self) -> None:
        """End the connection once all is sent, if its caller takes it in time."""
        self.transport.close()
        self._timer.expect(self._limits.idle_timeout_s)

    def _late(self) -> None:
        """What was expected has not happened."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # its caller does not take what was sent
        elif self._is_busy:
            self._timer.expect(self._limits.head_timeout_s)  # a head, behind what is not answered yet
        elif self._is_in_head:
            limit_s = self._limits.head_timeout_s
            self._refuse(RequestTimeout.of("head_timeout_s", limit_s, "the head did not arrive"))
        else:
            self._close()

    def on_response_complete(self) -> None:
        """A request is answered: begin the next one, if it is there; else the connection is idle."""
        if self.pipeline or self.transport.is_closing():
            self._running = self.pipeline[-1][0] if self.pipeline else None
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        if self._is_in_head:
            self._timer.expect(self._limits.head_timeout_s)
        elif self._running is None or self._running.response_complete:
            self._timer.expect(self._limits.idle_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: the request that runs is told, and those behind it are forgotten."""
        self._timer.stop()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._running = None
        self.cycle = None  # type: ignore[assignment]  # it knows this connection
        self._fault = None  # its traceback does, too
