"""What is done to a cluster, and how it is mended again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cluster.node_process import LEASE_MS, NodeProcess
from cluster.trial_cluster import TrialCluster
from cluster.wall_clock import WallClock


class Fault(StrEnum):
    """Its value is what happens, in words."""

    KILL_OWNER = "the owner is killed"
    KILL_STANDBY = "the standby is killed"
    KILL_NATS = "the leading NATS server is killed"
    PAUSE_NATS = "the leading NATS server stands still"
    PAUSE_OWNER = "the owner stands still for longer than its lease"
    CUT_FROM_NATS = "the owner is cut from NATS for longer than its lease"
    CUT_FROM_CLIENTS = "the owner is cut from its clients"
    SET_CLOCK = "the owner's wall clock jumps"
    ROLLING_RESTART = "all nodes are restarted in turn"

    @property
    def is_possible(self) -> bool:
        """Whether this machine has what it takes."""
        return self is not Fault.SET_CLOCK or WallClock.is_possible()


LONGER_S = (LEASE_MS * 1.5 / 1e3, LEASE_MS * 2.5 / 1e3)
"""Than a lease, drawn between these."""
CUT_S = (0.5, 3.0)
"""How long an owner is cut from its clients."""
NATS_PAUSE_S = (1.0, 8.0)
"""How long a NATS server stands still: others lead after four to nine seconds."""
JUMPS_S = (-86_400, -90, 90, 86_400)
MOST_PAUSE_S = 0.5
"""Before a fault: how far the work has come is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that was done.

    Attributes:
        fault: Which.
        whom: It was done to.
        at_ns: When, by the steady clock.
        pools: What the victim owned, and may have lost.
        planned: For each restart in turn: when it was asked to stop, when it had, and the pools it owned.
    """

    fault: Fault
    whom: str
    at_ns: int
    pools: tuple[str, ...] = ()
    planned: tuple[tuple[int, int, tuple[str, ...]], ...] = ()


class Striker:
    """Does faults to ``cluster``, each until it is mended and ``serves`` says that clients are served again.

    Args:
        cluster: Settled, before each.
        draw: Of whom and when.
        serves: Waits until every client has been answered from now on.
    """

    def __init__(self, cluster: TrialCluster, draw: random.Random, serves: Callable[[], None]) -> None:
        self._cluster = cluster
        self._draw = draw
        self._serves = serves

    def strike(self, fault: Fault) -> Struck:
        """Do it, wait until clients are served, and mend what is broken."""
        time.sleep(self._draw.uniform(0, MOST_PAUSE_S))
        match fault:
            case Fault.KILL_NATS | Fault.PAUSE_NATS:
                return self._break_nats(fault)
            case Fault.ROLLING_RESTART:
                return self._restart_all()
        name = self._draw.choice(sorted(self._cluster.pools()))
        pool = self._cluster.pools()[name]
        victim = self._cluster.node(pool["standby" if fault is Fault.KILL_STANDBY else "node"])
        pools = tuple(self._cluster.owned_by(victim))
        at_ns = time.monotonic_ns()
        match fault:
            case Fault.KILL_OWNER | Fault.KILL_STANDBY:
                victim.kill()
                self._serves()
                victim.begin()
                victim.wait_until_ready()
            case Fault.PAUSE_OWNER:
                self._pause(victim)
            case Fault.CUT_FROM_NATS:
                self._cut_from_nats(victim)
            case Fault.CUT_FROM_CLIENTS:
                self._cluster.network.cut_from_clients(victim.number)
                time.sleep(self._draw.uniform(*CUT_S))
                self._cluster.network.heal(victim.number)
            case Fault.SET_CLOCK:
                assert victim.clock is not None, "its clock can be set"
                victim.clock.set(self._draw.choice(JUMPS_S))
                time.sleep(self._draw.uniform(*LONGER_S))
        self._serves()
        return Struck(fault=fault, whom=victim.name, at_ns=at_ns, pools=pools)

    def _break_nats(self, fault: Fault) -> Struck:
        nats = self._cluster.nats
        leader = nats.leader()
        assert leader is not None
        at_ns = time.monotonic_ns()
        if fault is Fault.KILL_NATS:
            nats.kill(leader)
            self._serves()
            nats.restart(leader)
        else:
            nats.pause(leader)
            time.sleep(self._draw.uniform(*NATS_PAUSE_S))
            nats.resume(leader)
            nats.wait_until_ready()
        self._serves()
        return Struck(fault=fault, whom=f"n{leader + 1}", at_ns=at_ns)

    def _pause(self, victim: NodeProcess) -> None:
        """Its clients go to the new owner meanwhile, and to it again at once when it wakes up."""
        victim.pause()
        time.sleep(self._draw.uniform(*LONGER_S))
        self._serves()
        victim.resume()

    def _cut_from_nats(self, victim: NodeProcess) -> None:
        self._cluster.network.cut_from_nats(victim.number)
        time.sleep(self._draw.uniform(*LONGER_S))
        self._serves()
        self._cluster.network.heal(victim.number)

    def _restart_all(self) -> Struck:
        planned = []
        begin_ns = time.monotonic_ns()
        for node in self._draw.sample(self._cluster.nodes, len(self._cluster.nodes)):
            self._cluster.wait_until_settled()
            pools = tuple(self._cluster.owned_by(node))
            at_ns = time.monotonic_ns()
            status = node.stop()
            assert status == 0, f"{node.name} ended with {status}: {node.last_words()}"
            planned.append((at_ns, time.monotonic_ns(), pools))
            self._serves()
            node.begin()
            node.wait_until_ready()
        self._serves()
        return Struck(fault=Fault.ROLLING_RESTART, whom="every node", at_ns=begin_ns, planned=tuple(planned))
