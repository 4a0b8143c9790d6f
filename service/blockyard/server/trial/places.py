"""Where the NATS servers of a trial listen: addresses, ports, and what has to start them there."""

import random
import socket
from contextlib import closing
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
LOWEST_PORT, HIGHEST_PORT = 20_000, 32_000
"""Below the ports that outgoing connections get: none of those can take a server's while it is restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsPlace:
    """Where one server listens.

    Attributes:
        host: Its address.
        client_port: For clients.
        route_port: For the other servers.
        monitor_port: For questions about its state, over HTTP.
        prefix: Words before its command line, such as ``ip netns exec n1``; whatever they name has to become
            the server itself by ``exec``, as signals go to it.
    """

    host: str = LOOPBACK
    client_port: int = 4222
    route_port: int = 6222
    monitor_port: int = 8222
    prefix: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"nats://{self.host}:{self.client_port}"

    @property
    def route(self) -> str:
        """What other servers connect to."""
        return f"nats://{self.host}:{self.route_port}"

    @property
    def monitor(self) -> str:
        """What its state is asked of."""
        return f"http://{self.host}:{self.monitor_port}"


def loopback_places(num_servers: int) -> tuple[NatsPlace, ...]:
    """Places on loopback, at ports that are free now."""
    ports = iter(free_ports(3 * num_servers))
    return tuple(
        NatsPlace(client_port=next(ports), route_port=next(ports), monitor_port=next(ports))
        for _ in range(num_servers)
    )


def free_ports(count: int) -> list[int]:
    """So many ports of loopback that nobody listens at now."""
    draw = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = draw.randint(LOWEST_PORT, HIGHEST_PORT)
        try:
            with closing(socket.create_server((LOOPBACK, port))):
                found += [port] if port not in found else []
        except OSError:
            continue
    return found
