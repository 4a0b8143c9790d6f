from collections.abc import Iterator

import pytest

from server_process import running_server


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """One real server for all tests; each makes pools of its own."""
    with running_server("--log-level", "warning") as server:
        yield server.url


@pytest.fixture
def pool_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.nodeid)[-100:]
    return f"p{name}"
