"""What the exporter of traces has to say, as our own log lines, and not too often."""

import logging
import time

import structlog

log = structlog.get_logger("blockyard.tracing")

REPEAT_S = 60.0
"""So long a line of one kind is not written again: while a collector is away, each batch and each span that
finds no room has something to say."""


class ExportLog(logging.Handler):
    """Writes records of ``opentelemetry`` loggers with structlog, one of a kind in `REPEAT_S`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._written_s: dict[tuple[str, int], float] = {}  # by the line of code that speaks

    def emit(self, record: logging.LogRecord) -> None:
        """Write one, or leave it."""
        kind, now_s = (record.name, record.lineno), time.monotonic()
        if now_s - self._written_s.get(kind, -REPEAT_S) < REPEAT_S:
            return
        self._written_s[kind] = now_s
        log.log(record.levelno, "exporting traces", said=record.getMessage())

    def stop(self) -> None:
        """Write nothing more: a thread that writes while the interpreter ends would abort it."""
        self.setLevel(logging.CRITICAL + 1)
