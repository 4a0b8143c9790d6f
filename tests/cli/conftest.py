from collections.abc import Iterator

import pytest

from server_process import running_server


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A server that these tests share; each makes pools of its own names."""
    with running_server("--log-level", "warning") as server:
        yield server.url
