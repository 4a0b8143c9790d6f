"""Real server processes for tests."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

READY_LINE = re.compile(r"http://\S+")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A ``blockyard serve`` of our own on a free port."""

    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

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


@contextmanager
def running_server(*options: str, **environment: str) -> Iterator[ServerProcess]:
    """A server that is ready; ended by SIGTERM at the end, and expected to end with 0."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from blockyard.server.command_line import main; main()",
            "serve",
            "--port",
            "0",
            *options,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    try:
        found = READY_LINE.search(process.stdout.readline())
        assert found, "the server did not get ready"
        yield ServerProcess(found.group(), process)
    finally:
        if process.poll() is None:
            process.terminate()
        status = process.wait(timeout=30)
        process.stdout.close()
    assert status == 0, f"the server ended with {status}"
