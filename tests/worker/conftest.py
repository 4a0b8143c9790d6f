from collections.abc import Iterator

import pytest

from blockyard.client import Client
from server_process import running_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A real server for a module's tests; each makes pools of its own."""
    with running_server("--log-level", "warning") as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A pool's name that no other test has."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
