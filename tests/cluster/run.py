"""Clients at full speed, and a cluster that faults are done to under them, over and over."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cluster.faults import Fault, Striker, Struck
from cluster.figures import Acknowledged, Figures
from cluster.ownership import OwnershipNumbers
from cluster.register_history import RegisterHistories
from cluster.registers import registers
from cluster.trial_cluster import ALL_POOLS, TrialCluster, trial_cluster
from crash.calls import Answer, Call, LogReader
from crash.checker import Checker
from crash.clients import ClientProcess, ClientProcesses, Clients
from crash.ledger import Ledger
from server_process import TIMEOUT_S

NUM_CLIENTS, NUM_REGISTER_CLIENTS = 3, 3
MOST_COMPLAINTS = 20
NAMES = [pool.name for pool in ALL_POOLS]


class Histories:
    """Everything that all clients logged, for the checks that look at more than one of them.

    Attributes:
        registers: Held to their model.
        ownership: The numbers that were told.
        acknowledged: When calls were.
    """

    def __init__(self, logs: Iterable[Path]) -> None:
        self.registers = RegisterHistories(registers(NUM_REGISTER_CLIENTS))
        self.ownership = OwnershipNumbers()
        self.acknowledged = Acknowledged()
        self._readers = [LogReader(log) for log in logs]
        self._pending: list[Call | None] = [None] * len(self._readers)

    def note(self, client: str, call: Call, answer: Answer | None) -> None:
        """A call of the client of this name, and its answer if it had one."""
        self.ownership.note(call, answer)
        self.acknowledged.note(call, answer)
        if client.startswith("register"):
            self.registers.note(call, answer)

    def read(self) -> None:
        """What was logged since."""
        for number, reader in enumerate(self._readers):
            for entry in reader.read():
                if isinstance(entry, Call):
                    self._pending[number] = entry
                else:
                    call, self._pending[number] = self._pending[number], None
                    assert call is not None
                    self.note(reader.path.stem, call, entry)

    def wait_until_served(self) -> None:
        """Until a call of each pool was answered that was tried from now on."""
        begin_ns, deadline_s = time.monotonic_ns(), time.monotonic() + TIMEOUT_S
        while missing := self.acknowledged.not_since(begin_ns, NAMES):
            assert time.monotonic() < deadline_s, f"nobody answers for {missing}"
            time.sleep(0.02)
            self.read()

    def complaints(self) -> list[str]:
        """Of the numbers, and of the registers."""
        for reader, call in zip(self._readers, self._pending, strict=True):
            if call is not None:
                self.note(reader.path.stem, call, None)
        return [*self.ownership.complaints(), *self.registers.complaints()]


def clients_of(
    cluster: TrialCluster, folder: Path, seed: int
) -> tuple[list[ClientProcess], list[ClientProcess]]:
    """Those of the crash tests, and those of registers."""
    leases = cluster.make_leases()
    found: tuple[list[ClientProcess], list[ClientProcess]] = ([], [])
    for number in range(NUM_CLIENTS):
        found[0].append(_client(cluster, folder / f"client-{number}.log", seed + number, None))
    for number in range(NUM_REGISTER_CLIENTS):
        told = {"number": number, "num_clients": NUM_REGISTER_CLIENTS, "leases": leases}
        found[1].append(_client(cluster, folder / f"register-{number}.log", seed + 100 + number, told))
    return found


def _client(cluster: TrialCluster, log: Path, seed: int, told: dict[str, object] | None) -> ClientProcess:
    task = {"urls": cluster.urls, "log": str(log), "seed": seed, "registers": told}
    return ClientProcess(log, ("cluster.client_process", json.dumps(task)))


class ClusterRun:
    """Faults drawn from ``seed``, of ``kinds``; all that is written goes to ``folder``.

    ``first``: those that come before the others of the first turn.

    Attributes:
        figures: What was found.
        coverage: What happened how often.
    """

    def __init__(
        self, folder: Path, *, seed: int, kinds: Iterable[Fault] = tuple(Fault), first: Sequence[Fault] = ()
    ) -> None:
        self.figures = Figures(seed=seed)
        self.coverage: Counter[str] = Counter()
        self._folder = folder
        self._draw = random.Random(seed)
        self._kinds = [kind for kind in kinds if kind.is_possible]
        self._first = list(first)

    def run(self, num_faults: int, note: Callable[[Struck], None] = lambda _: None) -> None:
        """Do ``num_faults``, all kinds in turn, in an order that is drawn; ``note`` is told of each.

        Raises:
            AssertionError: Something is not as clients were told.
        """
        with trial_cluster(self._folder) as cluster:
            self.figures.network = cluster.network.kind
            cluster.make_pools()
            cluster.wait_until_settled()
            crash, register = clients_of(cluster, self._folder, self.figures.seed)
            histories = Histories(client.log for client in (*crash, *register))
            with (
                Clients(crash, signal.SIGUSR1) as clients,
                ClientProcesses(register, signal.SIGUSR1) as others,
            ):
                striker = Striker(cluster, self._draw, histories.wait_until_served)
                for fault in self._order(num_faults):
                    self._round(striker, fault, histories, note)
                    cluster.wait_until_settled()
                    for each in (clients, others):
                        each.pause()
                    check(cluster, clients.ledgers)
                    for each in (clients, others):
                        each.resume()
                for each in (clients, others):
                    each.end()
                histories.read()
                check(cluster, clients.ledgers)
                self.coverage += clients.counts()
            hold(histories.complaints())
        self.figures.num_acknowledged = histories.acknowledged.num_calls
        self.figures.num_register_calls = histories.registers.num_operations

    def _round(
        self, striker: Striker, fault: Fault, histories: Histories, note: Callable[[Struck], None]
    ) -> None:
        histories.wait_until_served()
        struck = striker.strike(fault)
        histories.read()
        self.coverage[fault] += 1
        self.figures.note(struck, time.monotonic_ns(), histories.acknowledged, NAMES)
        note(struck)

    def _order(self, num_faults: int) -> list[Fault]:
        rest = [kind for kind in self._kinds if kind not in self._first]
        order = self._first + self._draw.sample(rest, len(rest))
        while len(order) < num_faults:
            order += self._draw.sample(self._kinds, len(self._kinds))
        return order[:num_faults]


def check(cluster: TrialCluster, ledgers: dict[str, Ledger]) -> None:
    """Hold that ``cluster`` says what its clients were told."""
    checker = Checker(cluster.sender, ledgers)
    try:
        hold(checker.complaints())
    finally:
        checker.close()


def hold(complaints: list[str]) -> None:
    """That there are none."""
    assert not complaints, "\n".join([f"{len(complaints)} complaints", *complaints[:MOST_COMPLAINTS]])
