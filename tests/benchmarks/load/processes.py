"""The processes of a load: the bare application, and the generator that puts requests to a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load.pinning import pinned_to

HERE = Path(__file__).parent
SERVER_CORE, GENERATOR_CORE = 0, -1


@contextmanager
def bare_app(num_reply_bytes: int) -> Iterator[int]:
    """Its port."""
    command = [sys.executable, str(HERE / "bare_app.py"), str(num_reply_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def generate_load(port: int, seconds: float, requests: list[list[bytes]]) -> dict[str, float]:
    """What `generator` tells, run on a processor of its own."""
    with pinned_to(GENERATOR_CORE):
        done = subprocess.run(
            [sys.executable, str(HERE / "generator.py"), str(port), str(seconds)],
            input=json.dumps([[request.hex() for request in own] for own in requests]),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
