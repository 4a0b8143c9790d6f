"""Two nodes on loopback, with NATS servers of their own."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from blockyard.client.lean import LeanTransport
from blockyard.client.wire import Request
from blockyard.server.cluster.rendezvous import candidates
from blockyard.server.trial.nats_servers import NatsServers
from blockyard.server.trial.places import LOOPBACK
from cluster.network import NodePlace
from cluster.node_process import NodeProcess
from crash.server import free_port
from server_process import TIMEOUT_S

PAUSE_S = 0.02


class TwoNodes:
    """They run within the ``with`` block, and keep all that they write in ``folder``."""

    def __init__(self, folder: Path, num_nats_servers: int) -> None:
        self.nats = NatsServers(folder / "nats", num_servers=num_nats_servers)
        self.nodes: list[NodeProcess] = []
        self._folder = folder
        self._transport = LeanTransport()
        self._stack = ExitStack()

    def pool_of(self, node: NodeProcess, prefix: str) -> str:
        """A name that begins with ``prefix``, of a pool that belongs to ``node``."""
        names = [each.name for each in self.nodes]
        numbers = iter(range(1_000_000))
        return next(
            name
            for name in (f"{prefix}-{number}" for number in numbers)
            if candidates(name, names)[0] == node.name
        )

    def report(self, node: NodeProcess) -> dict[str, Any]:
        """What the node says of the cluster."""
        told: dict[str, Any] = json.loads(self._call(node, "/v1/cluster"))
        return told

    def wait_until_followed(self, pool: str, owner: NodeProcess) -> None:
        """Until ``owner`` owns the pool, and the other has read all of it."""
        (other,) = (node for node in self.nodes if node is not owner)
        deadline_s = time.monotonic() + 5 * TIMEOUT_S
        while True:
            found = {each["pool"]: each for each in self.report(other)["pools"]}.get(pool)
            if found is not None and (found["node"], found["role"], found["lag"]) == (
                owner.name,
                "standby",
                0,
            ):
                return
            assert time.monotonic() < deadline_s, f"nobody follows {pool}: {found}"
            time.sleep(PAUSE_S)

    def _call(self, node: NodeProcess, path: str) -> bytes:
        return self._transport.send(Request("GET", node.url, path), TIMEOUT_S).body

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.nats)
            stack.callback(self._transport.close)
            for number in range(2):
                port = free_port()
                place = NodePlace(
                    host=LOOPBACK,
                    port=port,
                    url=f"http://{LOOPBACK}:{port}",
                    nats_urls=self.nats.urls,
                )
                options = ["--cluster-replicas", str(len(self.nats.places))]
                node = NodeProcess(number, place, self._folder, options=options)
                self.nodes.append(node)
                stack.callback(_end, node)
                node.begin()
            for node in self.nodes:
                node.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _end(node: NodeProcess) -> None:
    if node.is_running:
        node.kill()
