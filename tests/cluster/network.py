"""What lies between nodes, NATS servers and clients, and can be cut: silently, as a broken switch does it.

clients ----------- front ----------- node ----------- back ----------- NATS servers
          cut_from_clients                cut_from_nats
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from blockyard.server.trial.places import NatsPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where a node is.

    Attributes:
        host: The address that it listens on.
        port: And the port.
        url: What others reach it by.
        nats_urls: What it reaches NATS by, with commas between.
        prefix: Words before its command line.
    """

    host: str
    port: int
    url: str
    nats_urls: str
    prefix: tuple[str, ...] = ()


class Network(ABC):
    """Of ``nodes`` and ``nats_servers``, in their order."""

    kind: str
    nodes: tuple[NodePlace, ...]
    nats_servers: tuple[NatsPlace, ...]

    @abstractmethod
    def cut_from_nats(self, node: int) -> None:
        """Nothing passes between it and any NATS server, until it is healed; clients reach it."""

    @abstractmethod
    def cut_from_clients(self, node: int) -> None:
        """Nothing passes between it and clients or other nodes, until it is healed; it reaches NATS."""

    @abstractmethod
    def heal(self, node: int) -> None:
        """Everything passes again."""


@contextmanager
def some_network(num_nodes: int, num_nats_servers: int) -> Iterator[Network]:
    """Namespaces where they are allowed, and relays on loopback where not."""
    from cluster.namespaces import are_allowed, namespaces  # noqa: PLC0415 - they need what is above
    from cluster.relays import relays  # noqa: PLC0415 - likewise

    made = namespaces if are_allowed() else relays
    with made(num_nodes, num_nats_servers) as network:
        yield network
