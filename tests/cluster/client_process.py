"""A client of a cluster: ``python -m cluster.client_process TASK``.

The task is JSON: ``{"urls", "log", "seed", "registers"}``. It calls as the clients of the crash tests do, or
where ``registers`` is not null, those: ``{"number", "num_clients", "leases"}``.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from cluster.register_calls import RegisterCalls
from cluster.sending import ClusterSender
from crash.calls import LogWriter
from crash.client_process import LoggingClient, call_until_told

PAUSE_S = 0.004
"""Between calls: so that what is looked for in the end is not in a haystack."""


class RegisterClient:
    """Calls by ``sender``, and writes each call to the log at ``path`` before it is sent."""

    def __init__(self, sender: ClusterSender, path: Path, calls: RegisterCalls) -> None:
        self._sender = sender
        self._calls = calls
        self._log = LogWriter(path)

    def call(self) -> None:
        """One call, until it is answered."""
        call = self._calls.next()
        self._log.write(call)
        answer = self._sender.send(call)
        self._log.write(answer)
        self._calls.note(call, answer)

    def close(self) -> None:
        self._sender.close()
        self._log.close()


def main(task: dict[str, Any]) -> None:
    seed, path = task["seed"], Path(task["log"])
    client: RegisterClient | LoggingClient
    if task["registers"] is None:
        client = LoggingClient(ClusterSender(task["urls"], seed=seed), path, seed)
    else:
        calls = RegisterCalls(**task["registers"], seed=seed)
        client = RegisterClient(ClusterSender(task["urls"], seed=seed, wanders=True), path, calls)

    def call() -> None:
        client.call()
        time.sleep(PAUSE_S)

    call_until_told(call)
    client.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
