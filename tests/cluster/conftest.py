"""A NATS server that the tests of a module share."""

from collections.abc import Iterator

import pytest

from blockyard.server.trial.nats_servers import NatsServers
from cluster.in_nats import one_server


@pytest.fixture(scope="module")
def servers() -> Iterator[NatsServers]:
    with one_server() as servers:
        yield servers
