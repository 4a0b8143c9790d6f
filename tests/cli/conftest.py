from collections.abc import Iterator

import pytest

from cli.support import serving


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A server that these tests share; each makes pools of its own names."""
    with serving() as server:
        yield server.url
