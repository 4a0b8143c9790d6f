"""Refusals by the thousand are not logged."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    earlier = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(50)
    )  # critical: above all that is used
    yield
    structlog.configure(**earlier)
