"""A cluster on one machine: NATS servers, and nodes that share pools among them.

folder/nats/   what the NATS servers keep      folder/node-1.log   what the first node logged
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from blockyard.server.trial.bound import bound_command
from blockyard.server.trial.nats_servers import NatsServers
from blockyard.server.trial.node_process import NodeProcess
from blockyard.server.trial.places import loopback_places

CLUSTER = "trial"
MAX_REPLICAS = 3
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that ended by itself, or was killed.

    Attributes:
        name: The node's or the NATS server's.
        is_node: Which of both it is.
        exit_status: A signal as a negative number.
    """

    name: str
    is_node: bool
    exit_status: int


class Trial:
    """Started by `start`, and stopped by leaving the ``with`` block: first the nodes, then NATS.

    No process of it outlives this one.

    Args:
        folder: For all that it keeps. What an earlier trial has left there goes on.
        ports: Of the nodes, one each, on loopback.
        num_nats_servers: Each stream has as many replicas, up to three.
    """

    def __init__(self, folder: Path, ports: list[int], num_nats_servers: int) -> None:
        places = [replace(place, prefix=bound_command()) for place in loopback_places(num_nats_servers)]
        self.nats = NatsServers(folder / "nats", places=places)
        self.nodes: list[NodeProcess] = []
        self._folder = folder
        self._ports = ports
        self._ending = ExitStack()
        self._told: set[str] = set()

    def start(self, say: Callable[[str], None]) -> None:
        """All of it, until every node answers; ``say`` is told what is waited for.

        Raises:
            NatsFailedError: A NATS server did not get so far.
            NodeFailedError: A node did not.
        """
        say(f"starting {_number(len(self.nats.places), 'NATS server')}")
        self._ending.enter_context(self.nats)
        say(f"starting {_number(len(self._ports), 'node')}")
        replicas = str(min(len(self.nats.places), MAX_REPLICAS))
        options = ("--cluster", self.nats.urls, "--cluster-name", CLUSTER, "--cluster-replicas", replicas)
        self._ending.callback(self._stop_nodes)
        for number, port in enumerate(self._ports, 1):
            name = f"node-{number}"
            self.nodes.append(NodeProcess(name, port, options, self._folder / f"{name}.log"))
        deadline_s = time.monotonic() + START_TIMEOUT_S
        for node in self.nodes:
            node.wait_until_ready(deadline_s)

    def ended(self) -> Iterator[Ended]:
        """Those of its processes that have ended since it was last asked."""
        for node in self.nodes:
            if node.exit_status is not None and node.name not in self._told:
                self._told.add(node.name)
                yield Ended(node.name, is_node=True, exit_status=node.exit_status)
        for index in range(len(self.nats.places)):
            name = f"n{index + 1}"
            status = None if name in self._told else _status_of(self.nats.process_id(index))
            if status is not None:
                self._told.add(name)
                yield Ended(name, is_node=False, exit_status=status)

    @property
    def is_over(self) -> bool:
        """Whether no node is left."""
        return all(node.exit_status is not None for node in self.nodes)

    def _stop_nodes(self) -> None:
        for node in self.nodes:
            node.begin_stop()
        for node in self.nodes:
            node.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()


def _status_of(process_id: int) -> int | None:
    """What a child ended with; None while it runs. It stays to be waited for."""
    found = os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
