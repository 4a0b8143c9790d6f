"""A span around each request, and inside it one for each thing that takes time.

A request's parent is what its ``traceparent`` names. Whether it is recorded was decided there, or is decided
by the sampler; a request that is not recorded has no spans inside, and costs little more than none at all.
"""

from collections.abc import Iterable
from typing import Any

import structlog
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockyard.core.commands import Command, unkeyed
from blockyard.core.errors import BlockyardError
from blockyard.core.replies import Reply
from blockyard.server.events.hub import EventHub
from blockyard.server.pool_call_handler import POOLS_PATH
from blockyard.server.pool_journal import Commit, PoolJournal
from blockyard.server.pools import Pools
from blockyard.server.sse import is_stream

UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked for every few seconds, by machines."""

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"})
"""Others are ``_OTHER``, as the semantic conventions have it: names of spans stay few."""

POOL_ROUTE = POOLS_PATH + "{pool}"


class TracedApp:
    """ASGI middleware: a span a request.

    It ends with the answer; where that goes on for ever, once it has begun. Log lines that are written
    meanwhile carry its ``trace_id``.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        parent = self._propagator.extract(scope["headers"], Context(), _HEADERS)
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "_OTHER"
        span = self._tracer.start_span(_name(method), parent, SpanKind.SERVER, _asked(scope, method))
        token = attach(set_span_in_context(span, parent))
        bound = structlog.contextvars.bind_contextvars(
            trace_id=format_trace_id(span.get_span_context().trace_id)
        )
        try:
            if span.is_recording():
                await self._recorded(scope, receive, send, span, method)
            else:
                await self._app(scope, receive, send)
        finally:
            structlog.contextvars.reset_contextvars(**bound)
            detach(token)

    async def _recorded(self, scope: Scope, receive: Receive, send: Send, span: Span, method: str) -> None:
        status = 0
        start: Message = {}

        async def noted(message: Message) -> None:
            nonlocal start, status
            if message["type"] == "http.response.start":
                start, status = message, message["status"]
            elif message.get("more_body") and span.is_recording() and is_stream(start):
                _end(span, scope, method, status)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            if span.is_recording():
                _end(span, scope, method, status)


class TracedPools(Pools):
    """Pools with a span around each command that a recorded request gives them."""

    def __init__(
        self, tracer: Tracer, max_pools: int, max_pool_blocks: int, journal: PoolJournal, hub: EventHub
    ) -> None:
        super().__init__(max_pools, max_pool_blocks, journal, hub)
        self._tracer = tracer

    def apply(self, name: str, command: Command, now_ms: int) -> Reply:
        """As `Pools.apply`. A refusal's code is the span's ``error.type``."""
        if not get_current_span().is_recording():
            return super().apply(name, command, now_ms)
        asked = unkeyed(command)
        span = self._tracer.start_span(f"apply {type(asked).__name__}", attributes={"blockyard.pool": name})
        try:
            return super().apply(name, command, now_ms)
        except BlockyardError as error:
            span.set_attribute("error.type", error.code)
            raise
        finally:
            span.end()


async def traced_settled(commit: Commit, tracer: Tracer) -> None:
    """`Commit.settled` with a span around it, where there is something to wait for."""
    if commit.settling is None or not get_current_span().is_recording():
        await commit.settled()
        return
    with tracer.start_as_current_span("wait for journal"):
        await commit.settled()


class _Headers(Getter[Iterable[tuple[bytes, bytes]]]):
    """Reads headers as ASGI has them: names in lower case."""

    def get(self, carrier: Iterable[tuple[bytes, bytes]], key: str) -> list[str] | None:
        wanted = key.encode()
        return [value.decode("latin-1") for name, value in carrier if name == wanted] or None

    def keys(self, carrier: Iterable[tuple[bytes, bytes]]) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_HEADERS = _Headers()


def _name(method: str, route: str | None = None) -> str:
    verb = "HTTP" if method == "_OTHER" else method
    return verb if route is None else f"{verb} {route}"


def _asked(scope: Scope, method: str) -> dict[str, Any]:
    """What is known of a request before it is done, by the semantic conventions' names."""
    attributes = {"http.request.method": method, "url.path": scope["path"], "url.scheme": scope["scheme"]}
    if method != scope["method"]:
        attributes["http.request.method_original"] = scope["method"]
    if scope["query_string"]:
        attributes["url.query"] = scope["query_string"].decode("latin-1")
    if scope.get("client"):
        attributes["client.address"] = scope["client"][0]
    return attributes


def _end(span: Span, scope: Scope, method: str, status: int) -> None:
    """End the span of a request that was answered with ``status``; 0: not at all."""
    route = getattr(scope.get("route"), "path_format", None)
    if route is not None:
        span.update_name(_name(method, route))
        span.set_attribute("http.route", route)
        if route.startswith(POOL_ROUTE):
            span.set_attribute("blockyard.pool", scope["path"].removeprefix(POOLS_PATH).partition("/")[0])
    if status:
        span.set_attribute("http.response.status_code", status)
    else:
        span.set_attribute("error.type", "aborted")
    if status >= 500:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)
    span.end()
