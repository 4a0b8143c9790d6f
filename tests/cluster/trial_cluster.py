"""Three NATS servers and three nodes, real processes, with a network between them that can be cut."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from blockyard.client.errors import ConnectionLost
from blockyard.client.lean import LeanTransport
from blockyard.client.wire import Request
from blockyard.server.trial.nats_servers import NatsServers
from cluster.network import Network, some_network
from cluster.node_process import SERVER, NodeProcess, node_name
from cluster.registers import LEASE_TTL_MS, REGISTER_POOLS
from cluster.sending import ClusterSender
from cluster.wall_clock import WallClock
from crash.drawn_pools import POOLS

NUM_NODES, NUM_NATS_SERVERS = 3, 3
ALL_POOLS = (*POOLS, *REGISTER_POOLS)
SETTLED_S = 60.0
ASK_S = 2.0
PAUSE_S = 0.05


class TrialCluster:
    """Its parts, which run already.

    Attributes:
        network: What lies between them.
        nats: The NATS servers.
        nodes: The nodes.
    """

    def __init__(self, network: Network, nats: NatsServers, nodes: list[NodeProcess]) -> None:
        self.network = network
        self.nats = nats
        self.nodes = nodes
        self._transport = LeanTransport()

    @property
    def urls(self) -> list[str]:
        """Of all nodes."""
        return [node.url for node in self.nodes]

    def sender(self, token: str = "") -> ClusterSender:
        """One to any node."""
        return ClusterSender(self.urls, token)

    def close(self) -> None:
        """The connections by which it asks."""
        self._transport.close()

    def make_pools(self) -> None:
        """Those of the crash tests, and those of registers."""
        sender = self.sender()
        for pool in ALL_POOLS:
            status, told = sender.put(f"/v1/pools/{pool.name}", pool.body)
            assert status in (200, 201), told
        sender.close()

    def make_leases(self) -> dict[str, str]:
        """One of each pool of registers, for all clients."""
        sender = self.sender()
        leases = {}
        for pool in REGISTER_POOLS:
            status, told = sender.post(
                f"/v1/pools/{pool.name}/leases", {"holder": "registers", "ttl_ms": LEASE_TTL_MS}
            )
            assert status == 201, told
            leases[pool.name] = told["lease_id"]
        sender.close()
        return leases

    def report(self, node: NodeProcess) -> Mapping[str, Any] | None:
        """What ``node`` says of the cluster; None where it says nothing."""
        try:
            response = self._transport.send(Request("GET", node.url, "/v1/cluster"), ASK_S)
        except ConnectionLost:
            return None
        report: dict[str, Any] = json.loads(response.body)
        return report if response.status == 200 else None

    def pools(self) -> dict[str, Mapping[str, Any]]:
        """What is known of each pool, by whoever knows of the newest owner."""
        found: dict[str, Mapping[str, Any]] = {}
        for node in self.nodes:
            report = self.report(node) if node.is_running and not node.is_paused else None
            for pool in report["pools"] if report is not None else ():
                known = found.get(pool["pool"])
                if known is None or _rank(pool) > _rank(known):
                    found[pool["pool"]] = pool
        return found

    def node(self, name: str) -> NodeProcess:
        """The node of this name."""
        return next(node for node in self.nodes if node.name == name)

    def owned_by(self, node: NodeProcess) -> list[str]:
        """The names of the pools that it owns."""
        return [name for name, pool in self.pools().items() if pool["node"] == node.name]

    def wait_until_settled(self, timeout_s: float = SETTLED_S) -> None:
        """Until every pool has an owner and a standby that has read all, and every node is live."""
        deadline_s = time.monotonic() + timeout_s
        while (lacking := self._lacking()) is not None:
            assert time.monotonic() < deadline_s, f"the cluster does not settle: {lacking}"
            time.sleep(PAUSE_S)

    def _lacking(self) -> str | None:
        """What keeps it from being settled, in the view of each node."""
        standing_by: set[str] = set()
        for node in self.nodes:
            report = self.report(node)
            if report is None:
                return f"{node.name} says nothing"
            if not report["is_connected"] or report["lease_left_ms"] <= 0:
                return f"{node.name} has no lease"
            live = {
                other["node"] for other in report["nodes"] if other["is_live"] and not other["is_leaving"]
            }
            if len(live) < len(self.nodes):
                return f"{node.name} knows of {sorted(live)} alone"
            owned = {pool["pool"]: pool for pool in report["pools"] if pool["node"] is not None}
            if not {pool.name for pool in ALL_POOLS} <= owned.keys():
                return f"{node.name} knows owners of {sorted(owned)} alone"
            standing_by |= {pool["pool"] for pool in report["pools"] if pool["role"] == "standby"}
        missing = {pool.name for pool in ALL_POOLS} - standing_by
        return f"nobody stands by for {sorted(missing)}" if missing else None


def _rank(pool: Mapping[str, Any]) -> tuple[int, bool]:
    return pool["ownership"], pool["node"] is not None


@contextmanager
def trial_cluster(folder: Path, *, module: str = SERVER) -> Iterator[TrialCluster]:
    """One that runs, with what its processes say in ``folder``; leaving the block ends them all."""
    with ExitStack() as stack:
        network = stack.enter_context(some_network(NUM_NODES, NUM_NATS_SERVERS))
        nats = stack.enter_context(NatsServers(folder / "nats", places=network.nats_servers))
        nodes = [
            NodeProcess(
                number, place, folder, module=module, clock=WallClock(folder / f"{node_name(number)}.clock")
            )
            for number, place in enumerate(network.nodes)
        ]
        for node in nodes:
            stack.callback(_end, node)
            node.begin()
        for node in nodes:
            node.wait_until_ready()
        cluster = TrialCluster(network, nats, nodes)
        stack.callback(cluster.close)
        yield cluster


def _end(node: NodeProcess) -> None:
    if node.is_running:
        node.kill()
