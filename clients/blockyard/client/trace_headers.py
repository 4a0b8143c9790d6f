"""Which trace of the caller's a call belongs to, as the headers of W3C Trace Context.

OpenTelemetry is neither needed nor imported here: where nobody else has imported it, there is no span, and
looking for it costs one look into a dict.
"""

import sys
from collections.abc import Mapping

NONE: Mapping[str, str] = {}


def trace_headers() -> Mapping[str, str]:
    """``traceparent``, and ``tracestate`` if there is one, of the span that is current; else nothing.

    Of a span that is not sampled as well: then the server does not sample its own either.
    """
    current_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if current_span is None:
        return NONE
    context = current_span().get_span_context()
    if not context.is_valid:
        return NONE
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    if not context.trace_state:
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": context.trace_state.to_header()}
