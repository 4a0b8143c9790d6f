"""A client that calls at full speed until it is told to end: ``python -m crash.client_process URL LOG SEED``.

``BLOCKYARD_TOKEN`` is its token, where the server asks for one.

At SIGTERM it ends with 0 once the call under way is answered, and at SIGUSR1 it stops itself then, until
SIGCONT. Its log's name is its own.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from crash.calls import LogWriter
from crash.drawn_calls import DrawnCalls
from crash.ledger import Ledger
from crash.sending import Sender


class LoggingClient:
    """Calls by ``sender``, and writes each call to the log at ``path`` before it is sent."""

    def __init__(self, sender: Sender, path: Path, seed: int) -> None:
        self.ledger = Ledger()
        self._calls = DrawnCalls(path.stem, seed, self.ledger)
        self._sender = sender
        self._log = LogWriter(path)

    def call(self) -> None:
        """One call, until it is answered."""
        call = self._calls.next()
        self._log.write(call)
        self.ledger.note(call)
        answer = self._sender.send(call)
        self._log.write(answer)
        self.ledger.note(answer)

    def close(self) -> None:
        self._sender.close()
        self._log.close()


NICENESS = 10
"""Whoever looks for the moment to kill goes first, where processors are few."""


def call_until_told(call: Callable[[], None]) -> None:
    """One ``call`` after the other, as the signals say."""
    os.nice(NICENESS)
    told: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: told.add(number))
    while signal.SIGTERM not in told:
        if signal.SIGUSR1 in told:
            told.discard(signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            call()


def main(url: str, path: Path, seed: int) -> None:
    client = LoggingClient(Sender(url, os.environ.get("BLOCKYARD_TOKEN", "")), path, seed)
    call_until_told(client.call)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
