"""Clients at full speed, and a server that is killed under them and started again, over and over."""

import random
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from access.token_files import add_token
from crash.checker import NO_TOKENS, OPERATOR, Checker, tenant_of
from crash.clients import ClientProcess, Clients
from crash.killing import Moment, kill
from crash.ledger import Ledger
from crash.sending import Sender
from crash.server import CrashingServer

NUM_CLIENTS = 4
SNAPSHOT_COMMANDS = "300"
"""As few as that, for a snapshot to be under way most of the time."""
MAX_ROUNDS = 3
"""How many times the kills that were asked for, at most, until every moment was hit."""
START_S = 1.2
"""How long a start takes, about."""
MOMENTS = list(Moment)


def client_name(number: int) -> str:
    return f"client-{number}"


def make_tokens(path: Path) -> dict[str, str]:
    """Tokens in a new file at ``path``: of an operator, and of each client, which has one of the tenants."""
    tokens = {OPERATOR: add_token(path, "admin")}
    for number in range(NUM_CLIENTS):
        tokens[client_name(number)] = add_token(path, "allocate", tenant=tenant_of(client_name(number)))
    return tokens


def clients_of(
    server: CrashingServer, folder: Path, seed: int, tokens: Mapping[str, str] = NO_TOKENS
) -> Clients:
    """Processes that call ``server``, each with a log in ``folder``, and with its token if there are any."""
    clients = []
    for number in range(NUM_CLIENTS):
        log = folder / f"{client_name(number)}.log"
        words = ("crash.client_process", server.url, str(log), str(seed * NUM_CLIENTS + number))
        clients.append(ClientProcess(log, words, tokens.get(log.stem, "")))
    return Clients(clients)


def check(server: CrashingServer, ledgers: dict[str, Ledger], tokens: Mapping[str, str] = NO_TOKENS) -> None:
    """Hold that ``server`` says what its clients were told."""
    checker = Checker(partial(Sender, server.url), ledgers, tokens)
    try:
        complaints = checker.complaints()
    finally:
        checker.close()
    assert not complaints, "\n".join([f"{len(complaints)} complaints", *complaints[:20]])


class CrashRun:
    """A server with data in ``folder``, started with ``options``, and clients that call it.

    ``with_tenants``: they are of several, with tokens and quotas.

    Attributes:
        coverage: What happened how often.
    """

    def __init__(self, folder: Path, *options: str, seed: int, with_tenants: bool = False) -> None:
        self.coverage: Counter[str] = Counter()
        self._tokens: Mapping[str, str] = NO_TOKENS
        if with_tenants:
            self._tokens = make_tokens(folder / "tokens.json")
            options += ("--token-file", str(folder / "tokens.json"))
        self._folder = folder
        self._seed = seed
        self._draw = random.Random(seed)
        self._server = CrashingServer(folder / "data", "--snapshot-commands", SNAPSHOT_COMMANDS, *options)

    def run(self, *, num_kills: int, must_happen: list[Moment]) -> None:
        """Kill and check ``num_kills`` times, and more often where ``must_happen`` was not hit.

        At the end the clients stop, and all is checked once more: before and after a clean restart.
        """
        with self._server as server:
            server.start()
            server.make_pools(self._tokens.get(OPERATOR, ""))
            with clients_of(server, self._folder, self._seed, self._tokens) as clients:
                for number in range(MAX_ROUNDS * num_kills):
                    missing = [moment for moment in must_happen if not self.coverage[moment]]
                    if number < num_kills:
                        self._round(clients, MOMENTS[number % len(MOMENTS)])
                    elif missing:
                        self._round(clients, missing[0])
                clients.end()
                check(server, clients.ledgers, self._tokens)
                assert server.stop() == 0
                server.start()
                check(server, clients.ledgers, self._tokens)
                self.coverage += clients.counts()
                clients.remove_logs()

    def _round(self, clients: Clients, wanted: Moment) -> None:
        """One kill, one restart, one check."""
        clients.wait_until_called()
        hit = kill(self._server, wanted, self._draw)
        clients.pause()
        if hit is Moment.START:
            self._server.begin()
            time.sleep(self._draw.uniform(0.1, START_S))
            self._server.kill()
        self.coverage[hit] += 1
        self.coverage["calls left open by a kill"] += sum(
            ledger.pending is not None for ledger in clients.ledgers.values()
        )
        killed_s = time.perf_counter()
        self._server.start()
        ready_s = time.perf_counter()
        check(self._server, clients.ledgers, self._tokens)
        checked_s = time.perf_counter()
        print(
            f"killed {hit}, after {sum(clients.counts().values())} calls; "
            f"ready in {ready_s - killed_s:.2f} s, checked in {checked_s - ready_s:.2f} s"
        )
        clients.resume()
