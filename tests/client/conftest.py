from collections.abc import Iterator

import pytest

from blockyard.client import Client, Pool, Scheduler
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


@pytest.fixture
def client(server_url: str) -> Iterator[Client]:
    with Client(server_url) as made:
        yield made


@pytest.fixture
def pool(client: Client, pool_name: str) -> Pool:
    """63 blocks of 4 tokens."""
    return client.create_pool(pool_name, num_blocks=64, block_size=4)


@pytest.fixture
def scheduler(pool: Pool) -> Iterator[Scheduler]:
    with pool.lease("me") as lease:
        yield Scheduler(lease, pool.hasher())
