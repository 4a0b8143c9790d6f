"""A network in the kernel: a namespace for each node and each NATS server, which two bridges join.

    here        198.18.N.1 -- front bridge -- 198.18.N.10 node 0, .11 node 1, ...
                198.19.N.1 -- back bridge --- 198.19.N.10 node 0, ..., .100 NATS server 0, ...

Nothing of it leaves the machine: the bridges have no other end. A cut link is a port of a bridge that passes
nothing on, and neither end is told.
"""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from blockyard.server.trial.places import NatsPlace
from cluster.network import Network, NodePlace

FRONT, BACK = "198.18", "198.19"
"""Set aside for tests of networks."""
FIRST_NODE, FIRST_NATS = 10, 100
NODE_PORT = 8484
PASSING, SILENT = "3", "0"
"""States of a bridge's port."""


def are_allowed() -> bool:
    """Whether they can be made here: tried."""
    if shutil.which("ip") is None or shutil.which("bridge") is None or os.geteuid() != 0:
        return False
    try:
        with namespaces(1, 0) as network:
            network.cut_from_nats(0)
    except subprocess.CalledProcessError:
        return False
    return True


@contextmanager
def namespaces(num_nodes: int, num_nats_servers: int) -> Iterator["Namespaces"]:
    """A network of them; leaving the block removes it, and by then nothing may run in it."""
    with ExitStack() as stack:
        yield Namespaces(num_nodes, num_nats_servers, stack)


class Namespaces(Network):
    """Removed again by ``stack``."""

    kind = "network namespaces"

    def __init__(self, num_nodes: int, num_nats_servers: int, stack: ExitStack) -> None:
        self._stack = stack
        self._tag = f"by{secrets.token_hex(2)}"
        self._number = _free_number()
        for letter, net in (("f", FRONT), ("b", BACK)):
            self._make_bridge(f"{self._tag}{letter}", f"{net}.{self._number}.1/24")
        servers = []
        for number in range(num_nats_servers):
            space = self._make_space(f"{self._tag}-nats{number}")
            self._join(space, f"{self._tag}bs{number}", "b", f"{BACK}.{self._number}.{FIRST_NATS + number}")
            servers.append(
                NatsPlace(host=f"{BACK}.{self._number}.{FIRST_NATS + number}", prefix=_inside(space))
            )
        self.nats_servers = tuple(servers)
        self.nodes = tuple(self._make_node(number) for number in range(num_nodes))

    def cut_from_nats(self, node: int) -> None:
        """Its port of the back bridge falls silent."""
        _set_port(f"{self._tag}bn{node}", SILENT)

    def cut_from_clients(self, node: int) -> None:
        """Its port of the front bridge falls silent."""
        _set_port(f"{self._tag}fn{node}", SILENT)

    def heal(self, node: int) -> None:
        """Both pass everything on."""
        for letter in "fb":
            _set_port(f"{self._tag}{letter}n{node}", PASSING)

    def _make_node(self, number: int) -> NodePlace:
        space = self._make_space(f"{self._tag}-node{number}")
        host = f"{FRONT}.{self._number}.{FIRST_NODE + number}"
        self._join(space, f"{self._tag}fn{number}", "f", host)
        self._join(space, f"{self._tag}bn{number}", "b", f"{BACK}.{self._number}.{FIRST_NODE + number}")
        return NodePlace(
            host=host,
            port=NODE_PORT,
            url=f"http://{host}:{NODE_PORT}",
            nats_urls=",".join(server.url for server in self.nats_servers),
            prefix=_inside(space),
        )

    def _make_bridge(self, name: str, address: str) -> None:
        _ip("link", "add", name, "type", "bridge")
        self._stack.callback(_ip, "link", "del", name)
        _ip("address", "add", address, "dev", name)
        _ip("link", "set", name, "up")

    def _make_space(self, name: str) -> str:
        _ip("netns", "add", name)
        self._stack.callback(_ip, "netns", "del", name)
        _ip("-n", name, "link", "set", "lo", "up")
        return name

    def _join(self, space: str, link: str, letter: str, address: str) -> None:
        """Give a namespace an ``address`` on a bridge, by way of a ``link``."""
        inside = {"f": "front", "b": "back"}[letter]
        _ip("link", "add", link, "type", "veth", "peer", "name", inside, "netns", space)
        self._stack.callback(_ip, "link", "del", link)  # a namespace may live on for a while without its name
        _ip("link", "set", link, "master", f"{self._tag}{letter}", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", inside)
        _ip("-n", space, "link", "set", inside, "up")


def _inside(space: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", space)


def _set_port(link: str, state: str) -> None:
    subprocess.run(["bridge", "link", "set", "dev", link, "state", state], check=True, capture_output=True)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _free_number() -> int:
    """The third number of addresses that nobody on this machine has."""
    known = {
        address["local"]
        for link in json.loads(_ip("-json", "address"))
        for address in link["addr_info"]
        if "local" in address
    }
    taken = {int(each.split(".")[2]) for each in known if each.startswith((f"{FRONT}.", f"{BACK}."))}
    return secrets.choice([number for number in range(256) if number not in taken])
