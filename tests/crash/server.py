"""A server on one data directory and one port that is killed and started again."""

import random
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Self

from crash.drawn_pools import POOLS
from crash.sending import Sender
from server_process import READY, ServerProcess, first_line, require, start

LOWEST_PORT, HIGHEST_PORT = 20_000, 30_000
"""Below the ports that connections get by themselves: who calls a port of those while nobody listens there
may be connected to itself, and then keeps the server from its port."""


class CrashingServer:
    """``blockyard serve`` in the data directory ``path``. Leaving the ``with`` block kills it."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self.port = free_port()
        self._options = options
        self._running: ServerProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def arguments(self) -> list[str]:
        """Of the command line."""
        options = ["--port", str(self.port), "--data-dir", str(self.path), "--log-level", "warning"]
        return ["serve", *options, *self._options]

    @property
    def process_id(self) -> int:
        return self._existing.process.pid

    @property
    def _existing(self) -> ServerProcess:
        assert self._running is not None, "it does not run"
        return self._running

    @property
    def wal(self) -> Path:
        """Where the journal's appends go."""
        return self.path / "journal.sqlite-wal"

    def begin(self) -> None:
        """Start it, and do not wait."""
        assert self._running is None, "it runs already"
        self._running = ServerProcess(self.url, start(*self.arguments, stderr=None))

    def start(self) -> None:
        """Until it is ready."""
        self.begin()
        line = first_line(require(self._existing.process.stdout))
        assert line == f"{READY}{self.url}\n", f"the server did not get ready: {line!r}"

    def make_pools(self, operator: str = "") -> None:
        """With the quotas of tenants, if there is the token of an ``operator``."""
        sender = Sender(self.url, operator)
        for pool in POOLS:
            status, told = sender.put(f"/v1/pools/{pool.name}", pool.body)
            assert status in (200, 201), told
            for tenant, quota in pool.quotas.items() if operator else ():
                status, told = sender.put(f"/v1/pools/{pool.name}/tenants/{tenant}", quota)
                assert status == 200, told
        sender.close()

    def kill(self) -> None:
        """At once, and wait until it is gone."""
        assert self._end(signal.SIGKILL) == -signal.SIGKILL, "it ended by itself"

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        running, self._running = self._existing, None
        with running.process:
            try:
                return running.stop(number)
            finally:
                running.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._end(signal.SIGKILL)


def free_port() -> int:
    """One that nobody listens at."""
    while True:
        port = random.SystemRandom().randint(LOWEST_PORT, HIGHEST_PORT)
        try:
            with closing(socket.create_server(("127.0.0.1", port))):
                return port
        except OSError:
            continue
