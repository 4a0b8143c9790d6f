"""What the server logs of its own mistakes is written as a server writes it."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True, scope="module")
def tracebacks_without_values() -> Iterator[None]:
    """structlog's default has the values of all local variables, which takes seconds for an application's."""
    earlier = structlog.get_config()
    *processors, _ = earlier["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])
    yield
    structlog.configure(**earlier)
