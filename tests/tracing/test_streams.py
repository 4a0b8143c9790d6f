"""A stream's span is over when the stream has begun."""

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Message, Receive, Scope, Send

from blockyard.server.tracing.request_spans import TracedApp

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/v1/pools/p/events",
    "scheme": "http",
    "query_string": b"",
    "headers": [],
}
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


def test_a_stream_ends_its_span_when_it_has_begun() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    num_ended: list[int] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        num_ended.append(len(exporter.get_finished_spans()))
        for _number in range(3):
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            num_ended.append(len(exporter.get_finished_spans()))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pass

    asyncio.run(TracedApp(app, provider.get_tracer("test"))(dict(SCOPE), receive, send))
    assert num_ended == [0, 1, 1, 1]
    (stream,) = exporter.get_finished_spans()
    assert stream.attributes is not None
    assert stream.attributes["http.response.status_code"] == 200
