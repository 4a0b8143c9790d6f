"""Real processes of the command line for tests: ``blockyard`` run to its end, or a server that is ready."""

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

COMMAND = [sys.executable, "-m", "blockyard.server"]
SELDOM = ("--snapshot-interval-s", "86400")
"""A server of many tests takes no snapshots by age: each is a process, of every pool that a test has left."""
READY = "blockyard is ready at "
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A ``blockyard serve`` of our own."""

    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """One JSON call with the standard library alone: status and body."""
        data = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **named}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Ours without ``BLOCKYARD_*``, which are the developer's, and with ``variables``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BLOCKYARD_")}
    return {**kept, **variables}


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``blockyard`` with ``arguments`` to its end, in an environment with ``variables``."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def start(
    *arguments: str | Path, stderr: int | None = subprocess.PIPE, **variables: str
) -> subprocess.Popen[str]:
    """``blockyard`` with ``arguments``, not waited for; ``stderr`` None is ours."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


@contextmanager
def running_server(*options: str, **variables: str) -> Iterator[ServerProcess]:
    """A server that is ready, on a free port unless told otherwise; it is expected to end with 0.

    It has a data directory of its own, unless told otherwise. What it logs goes to our standard error, which
    pytest shows where a test fails.
    """
    with logging_server(None, *options, **variables) as server:
        yield server


@contextmanager
def logging_server(stderr: int | None, /, *options: str, **variables: str) -> Iterator[ServerProcess]:
    """As `running_server`; what it logs goes to the file descriptor ``stderr``."""
    with (
        TemporaryDirectory(prefix="blockyard-") as folder,
        start(
            *("serve", "--port", "0", "--data-dir", folder, *SELDOM, *options), stderr=stderr, **variables
        ) as process,
    ):
        try:
            line = first_line(require(process.stdout))
            assert line.startswith(READY), f"the server did not get ready: {line!r}"
            yield ServerProcess(line.removeprefix(READY).strip(), process)
            if process.poll() is None:
                process.terminate()
            status = process.wait(TIMEOUT_S)
        finally:
            process.kill()
    assert status == 0, f"the server ended with {status}"


def first_line(stream: IO[str]) -> str:
    """The first line of a pipe; empty where it ends, or where nothing comes in time."""
    readable, _, _ = select.select([stream], [], [], TIMEOUT_S)
    return stream.readline() if readable else ""


def require(stream: IO[str] | None) -> IO[str]:
    """A stream that is a pipe."""
    assert stream is not None
    return stream
