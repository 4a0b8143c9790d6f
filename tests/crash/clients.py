"""Client processes, each with a log, that are paused, read and ended together."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from crash.calls import LogReader
from crash.ledger import Ledger
from server_process import TIMEOUT_S, environment

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class ClientProcess:
    """A module and its arguments, which writes ``log`` and calls with ``token``; ``prefix`` starts it."""

    log: Path
    words: tuple[str, ...]
    token: str = ""
    prefix: tuple[str, ...] = ()

    def start(self) -> subprocess.Popen[bytes]:
        variables = {"PYTHONPATH": str(TESTS), "BLOCKYARD_TOKEN": self.token}
        command = [*self.prefix, sys.executable, "-m", *self.words]
        return subprocess.Popen(command, env=environment(variables))


class ClientProcesses:
    """Starts ``clients``. Leaving the block kills them.

    ``pausing``: SIGSTOP, by which they stop wherever they are; or SIGUSR1, by which each stops between calls.
    """

    def __init__(self, clients: Sequence[ClientProcess], pausing: signal.Signals = signal.SIGSTOP) -> None:
        self._pausing = pausing
        self._processes = [client.start() for client in clients]

    def pause(self) -> None:
        """They do nothing from here on."""
        for process in self._processes:
            assert process.poll() is None, "a client has ended by itself"
            process.send_signal(self._pausing)
        for process in self._processes:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert process.poll() is None, "a client has ended by itself"

    def resume(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Each once its last call is answered."""
        for process in self._processes:
            process.terminate()
        assert {process.wait(TIMEOUT_S) for process in self._processes} == {0}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class Clients(ClientProcesses):
    """With a ledger of each, which knows all that it wrote whenever they are paused or have ended."""

    def __init__(self, clients: Sequence[ClientProcess], pausing: signal.Signals = signal.SIGSTOP) -> None:
        super().__init__(clients, pausing)
        self.ledgers = {client.log.stem: Ledger() for client in clients}
        self._readers = {client.log.stem: LogReader(client.log) for client in clients}

    def pause(self) -> None:
        """As `ClientProcesses.pause`."""
        super().pause()
        self._read()

    def end(self) -> None:
        """As `ClientProcesses.end`."""
        super().end()
        self._read()

    def wait_until_called(self) -> None:
        """Until each has written since it was last paused, or made."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not all(reader.has_more for reader in self._readers.values()):
            assert time.monotonic() < deadline_s, "a client does not call"
            time.sleep(0.01)

    def remove_logs(self) -> None:
        """Where nothing was found, nobody wants them, and they are large."""
        for reader in self._readers.values():
            reader.path.unlink()

    def counts(self) -> Counter[str]:
        """What all of them did how often."""
        return sum((ledger.counts for ledger in self.ledgers.values()), Counter())

    def _read(self) -> None:
        for name, reader in self._readers.items():
            for entry in reader.read():
                self.ledgers[name].note(entry)
