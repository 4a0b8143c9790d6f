"""A server that tells what garbage it has, for tests that none is left."""

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from server_process import READY, environment


class Garbage:
    """A server that tells what garbage it has, and a connection to it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = process.stdout
        url = self._lines.readline().removeprefix(READY).strip()
        self.port = int(url.rsplit(":", 1)[1])
        self._connection = self.connect()
        assert self.call("PUT", "/v1/pools/p", {"num_blocks": 1000, "block_size": 16})[0] == 201
        self.lease: str = self.call("POST", "/v1/pools/p/leases", {"holder": "test", "ttl_ms": 600_000})[1][
            "lease_id"
        ]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def call(
        self, method: str, path: str, body: Any = None, connection: http.client.HTTPConnection | None = None
    ) -> tuple[int, Any]:
        used = connection or self._connection
        raw = None if body is None else json.dumps(body)
        used.request(method, path, raw, {"Content-Type": "application/json"})
        reply = used.getresponse()
        return reply.status, json.loads(reply.read())

    def hang_up(self) -> None:
        self._connection.close()

    def found(self) -> Any:
        """What a full collection finds now: the names of types, and how many of each."""
        time.sleep(0.3)  # whoever hung up has gone by then
        self._process.send_signal(signal.SIGUSR1)
        return json.loads(self._lines.readline().replace("'", '"'))


@contextmanager
def garbage_server(*options: str) -> Iterator[Garbage]:
    """One that is ready; it is expected to end with 0."""
    program = str(Path(__file__).with_name("garbage_process.py"))
    with subprocess.Popen(
        [sys.executable, program, "serve", "--port", "0", "--log-level", "error", *options],
        env=environment({}),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            garbage = Garbage(process)
            garbage.found()
            yield garbage
            garbage.hang_up()
        finally:
            process.terminate()
            assert process.wait(30) == 0
