"""The process's traces: made here, sent over OTLP/HTTP in the background.

Where to, which requests and under which name is said by OpenTelemetry's own variables, such as
``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER`` and ``OTEL_SERVICE_NAME``. The provider is not made
the whole process's: FastAPI would trace by it, too, and not the hot path.
"""

import logging
import threading
from importlib.metadata import version
from types import TracebackType
from typing import Self

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from starlette.types import ASGIApp

from blockyard.server.events.hub import EventHub
from blockyard.server.pool_journal import Commit, PoolJournal
from blockyard.server.pools import Pools
from blockyard.server.tracing.export_log import ExportLog
from blockyard.server.tracing.request_spans import TracedApp, TracedPools, traced_settled

log = structlog.get_logger("blockyard.tracing")

FLUSH_S = 3.0
"""How long the end waits for the last spans to be sent: a collector that is there takes them in less."""


class Tracing:
    """Traces from the beginning of a ``with`` block to its end, which sends what is left."""

    def __init__(self) -> None:
        logger = logging.getLogger("opentelemetry")
        self._log = ExportLog()
        logger.addHandler(self._log)
        logger.propagate = False
        ours = Resource.create({"service.name": "blockyard", "service.version": version("blockyard")})
        self._exporter: SpanExporter = OTLPSpanExporter()
        self._provider = TracerProvider(
            resource=ours.merge(OTELResourceDetector().detect()),  # a name in the environment goes before
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("blockyard.server", version("blockyard"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The processor's own end would wait for as long as its exporter tries again.
        flushing = threading.Thread(target=self._provider.shutdown, name="flush traces", daemon=True)
        flushing.start()
        flushing.join(FLUSH_S)
        if flushing.is_alive():
            log.warning("the last traces could not be sent", within_s=FLUSH_S)
            self._log.stop()
            self._exporter.shutdown()

    def around(self, app: ASGIApp) -> ASGIApp:
        """``app`` with a span around each request."""
        return TracedApp(app, self._tracer)

    def pools(self, max_pools: int, max_pool_blocks: int, journal: PoolJournal, hub: EventHub) -> Pools:
        """`Pools` with a span around each command."""
        return TracedPools(self._tracer, max_pools, max_pool_blocks, journal, hub)

    async def settled(self, commit: Commit) -> None:
        """`Commit.settled` with a span around it."""
        await traced_settled(commit, self._tracer)
