"""A caller with spans of its own, made with OpenTelemetry's SDK as an engine would make them."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id


@contextmanager
def span(*, is_sampled: bool = True) -> Iterator[SpanContext]:
    """The current span of a block; recorded and sent nowhere."""
    provider = TracerProvider(ALWAYS_ON if is_sampled else ALWAYS_OFF, shutdown_on_exit=False)
    with provider.get_tracer("caller").start_as_current_span("caller") as current:
        yield current.get_span_context()


def ids(context: SpanContext) -> tuple[str, str]:
    """Its trace's and its own id, as they travel."""
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


def traceparent(context: SpanContext) -> str:
    """The header that carries it."""
    return f"00-{'-'.join(ids(context))}-{context.trace_flags:02x}"
