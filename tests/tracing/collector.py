"""A collector of traces: a real HTTP server that takes OTLP and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from waiting import wait_for


@dataclass(frozen=True, slots=True)
class TakenSpan:
    """A span as it arrived. Ids are hex; a root's ``parent_id`` is empty; ``kind`` 2 is a server."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass(slots=True)
class Collector:
    """What came in so far, and where it listens."""

    url: str
    spans: list[TakenSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """By which a server sends its traces here, without waiting for many of them."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def trace(self, trace_id: str, last: str) -> list[TakenSpan]:
        """All spans of a trace, once that of the name ``last`` is among them."""
        wait_for(lambda: any(span.name == last for span in self.where(trace_id=trace_id)))
        return self.where(trace_id=trace_id)

    def asked(self, path: str) -> TakenSpan:
        """The last request for ``path``, once it is there."""
        wait_for(lambda: any(span.attributes.get("url.path") == path for span in self.spans))
        return [span for span in self.spans if span.attributes.get("url.path") == path][-1]

    def where(self, **values: str) -> list[TakenSpan]:
        """Those that have all of these."""
        return [
            span
            for span in list(self.spans)
            if all(getattr(span, name) == value for name, value in values.items())
        ]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.spans += taken(ExportTraceServiceRequest.FromString(raw))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Not on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def taken(request: ExportTraceServiceRequest) -> Iterator[TakenSpan]:
    for of_resource in request.resource_spans:
        resource = plain(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield TakenSpan(
                    name=span.name,
                    kind=span.kind,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    trace_state=span.trace_state,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    is_error=span.status.code == 2,
                    attributes=plain(span.attributes),
                    resource=resource,
                )


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dict."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
