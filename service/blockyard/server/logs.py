"""Structured logs on standard error: an event and its fields a line."""

import logging
import sys

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_TRACEBACKS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
"""Without the values of local variables: among them are headers, bodies and secrets."""


def configure(level: str, log_format: str) -> None:
    """Set up logging for the process: ``level`` and more severe, as ``json`` or for the ``console``."""
    renderer: structlog.typing.Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(_TRACEBACKS)
            if log_format == "json"
            else structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # What uvicorn has to say: only its warnings, in the same place.
    logging.basicConfig(stream=sys.stderr, level=max(LEVELS[level], logging.WARNING), format="%(message)s")
