"""The processes of a load: the bare application, and the generator that puts requests to a server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.load.pinning import pinned_to

HERE = Path(__file__).parent
SERVER_CORE, GENERATOR_CORE = 0, -1


class Serving(NamedTuple):
    """A process that answers at ``port``."""

    port: int
    process_id: int

    def cpu_seconds(self) -> float:
        """The processor's time that it has had."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def bare_app(num_reply_bytes: int) -> Iterator[Serving]:
    """`bare_app`, ready."""
    command = [sys.executable, str(HERE / "bare_app.py"), str(num_reply_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Serving(int(process.stdout.readline()), process.pid)
        finally:
            process.kill()


def generate_load(serving: Serving, seconds: float, requests: list[list[bytes]]) -> dict[str, float]:
    """What `generator` tells, run on a processor of its own; and the server's processor time a request."""
    before_s = serving.cpu_seconds()
    with pinned_to(GENERATOR_CORE):
        done = subprocess.run(
            [sys.executable, str(HERE / "generator.py"), str(serving.port), str(seconds)],
            input=json.dumps([[request.hex() for request in own] for own in requests]),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    figures: dict[str, float] = json.loads(done.stdout)
    figures["cpu_us"] = (serving.cpu_seconds() - before_s) / figures["answered"] * 1e6
    return figures
