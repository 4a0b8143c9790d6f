"""In-process servers for tests: the whole application, without a socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient

from blockyard.server.app import create_app
from blockyard.server.settings import Settings


@contextmanager
def make_api(**settings: Any) -> Iterator[TestClient]:
    """An application that has started, and a client of it."""
    with TestClient(create_app(Settings(**settings)), raise_server_exceptions=False) as api:
        yield api


def make_pool(api: TestClient, name: str = "pool", **config: Any) -> str:
    """A pool of 10 blocks of 4 tokens unless ``config`` says otherwise; returns its path."""
    if "groups" not in config:
        config = {"block_size": 4, **config}
    reply = api.put(f"/v1/pools/{name}", json={"num_blocks": 10, **config})
    assert reply.status_code == 201, reply.text
    return f"/v1/pools/{name}"


def make_lease(api: TestClient, pool: str, ttl_ms: int = 60_000, holder: str = "test") -> str:
    """A lease of ``pool``; returns its id."""
    reply = api.post(f"{pool}/leases", json={"holder": holder, "ttl_ms": ttl_ms})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["lease_id"])


def block_hashes(*numbers: int) -> list[str]:
    """A hash a number, in hex."""
    return [f"{number:064x}" for number in numbers]
