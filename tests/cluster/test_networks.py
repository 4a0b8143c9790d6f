"""What is cut does not pass and what is healed does, in the kernel's network and in that of relays."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from cluster.namespaces import are_allowed, namespaces
from cluster.network import Network
from cluster.relays import relays

SILENCE_S = 0.3
ANSWERING = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listening:
    print("ready", flush=True)
    while True:
        with listening.accept()[0] as caller:
            caller.sendall(b"here")
"""
ASKING = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as there:
    print(there.recv(4).decode())
"""


class Making(Protocol):
    def __call__(self, num_nodes: int, num_nats_servers: int) -> AbstractContextManager[Network]: ...


needs_namespaces = pytest.mark.skipif(not are_allowed(), reason="network namespaces are not allowed here")
MAKING = [
    pytest.param(namespaces, marks=needs_namespaces, id="namespaces"),
    pytest.param(relays, id="relays"),
]


@contextmanager
def answering(prefix: tuple[str, ...], host: str, port: int) -> Iterator[None]:
    """Whoever connects is told that it is here."""
    command = [*prefix, sys.executable, "-c", ANSWERING, host, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


@contextmanager
def answering_network(make: Making) -> Iterator[Network]:
    """Two nodes and a NATS server."""
    if make is namespaces and not are_allowed():
        pytest.skip("network namespaces are not allowed here")
    with make(2, 1) as network:
        (server,) = network.nats_servers
        first, second = network.nodes
        with (
            answering(first.prefix, first.host, first.port),
            answering(second.prefix, second.host, second.port),
            answering(server.prefix, server.host, server.client_port),
        ):
            yield network


def reaches_nats(network: Network, node: int) -> bool:
    """Whether the node does."""
    place = network.nodes[node]
    parts = urlsplit(place.nats_urls)
    command = [sys.executable, "-c", ASKING, str(parts.hostname), str(parts.port), str(SILENCE_S)]
    done = subprocess.run([*place.prefix, *command], capture_output=True, text=True, check=False, timeout=10)
    return done.stdout == "here\n"


def is_reached(network: Network, node: int) -> bool:
    """Whether a client reaches the node."""
    parts = urlsplit(network.nodes[node].url)
    try:
        with socket.create_connection((str(parts.hostname), int(parts.port or 80)), SILENCE_S) as there:
            return there.recv(4) == b"here"
    except TimeoutError:
        return False


@pytest.mark.parametrize("make", MAKING)
def test_a_node_that_is_cut_from_nats_is_reached_by_clients(make: Making) -> None:
    with answering_network(make) as network:
        assert reaches_nats(network, 0)
        network.cut_from_nats(0)
        assert not reaches_nats(network, 0)
        assert is_reached(network, 0)
        assert reaches_nats(network, 1)
        network.heal(0)
        assert reaches_nats(network, 0)


@pytest.mark.parametrize("make", MAKING)
def test_a_node_that_is_cut_from_clients_reaches_nats(make: Making) -> None:
    with answering_network(make) as network:
        assert is_reached(network, 0)
        network.cut_from_clients(0)
        assert not is_reached(network, 0)
        assert is_reached(network, 1)
        assert reaches_nats(network, 0)
        network.heal(0)
        assert is_reached(network, 0)
