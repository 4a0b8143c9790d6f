"""A network on loopback: a node is reached, and reaches NATS, by way of relays that can be cut.

Where namespaces are not allowed. A cut relay holds back what comes, and takes connections without a word.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from blockyard.server.trial.places import LOOPBACK, loopback_places
from cluster.network import Network, NodePlace
from crash.server import free_port

READ_BYTES = 1 << 16


class Relay:
    """Listens at ``port``, or else at a free one, and passes on to ``target``, a port too."""

    def __init__(self, target: int, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self._target = target
        self._passes = threading.Event()
        self._passes.set()
        self._listening = socket.create_server((LOOPBACK, self.port))
        self._open: set[socket.socket] = set()

    def cut(self) -> None:
        self._passes.clear()

    def heal(self) -> None:
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                caller, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        self._passes.wait()
        try:
            called = socket.create_connection((LOOPBACK, self._target))
        except OSError:
            caller.close()
            return
        with caller, called:
            self._open |= {caller, called}
            other = threading.Thread(target=self._pass_on, args=(caller, called), daemon=True)
            other.start()
            self._pass_on(called, caller)
            other.join()
            self._open -= {caller, called}

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                self._passes.wait()
                target.sendall(data)
        _end(source, target)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listening)
        self._listening.close()
        self.heal()
        _end(*self._open)


def _end(*sockets: socket.socket) -> None:
    """Whoever waits for something from them is told that nothing comes."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relays(num_nodes: int, num_nats_servers: int) -> Iterator["Relays"]:
    """A network of them."""
    with ExitStack() as stack:
        yield Relays(num_nodes, num_nats_servers, stack)


class Relays(Network):
    """Closed by ``stack``."""

    kind = "relays on loopback"

    def __init__(self, num_nodes: int, num_nats_servers: int, stack: ExitStack) -> None:
        self.nats_servers = loopback_places(num_nats_servers)
        self._back: list[list[Relay]] = []
        self._front: list[Relay] = []
        nodes = []
        for _ in range(num_nodes):
            back = [stack.enter_context(Relay(server.client_port)) for server in self.nats_servers]
            port = free_port()
            front = stack.enter_context(Relay(port))
            self._back.append(back)
            self._front.append(front)
            nodes.append(
                NodePlace(
                    host=LOOPBACK,
                    port=port,
                    url=f"http://{LOOPBACK}:{front.port}",
                    nats_urls=",".join(f"nats://{LOOPBACK}:{relay.port}" for relay in back),
                )
            )
        self.nodes = tuple(nodes)

    def cut_from_nats(self, node: int) -> None:
        """Its relays to them are cut."""
        for relay in self._back[node]:
            relay.cut()

    def cut_from_clients(self, node: int) -> None:
        """The relay to it is cut."""
        self._front[node].cut()

    def heal(self, node: int) -> None:
        """All of its relays pass everything on."""
        for relay in (*self._back[node], self._front[node]):
            relay.heal()
