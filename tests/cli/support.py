"""Real processes of the command line, and a short trace whose hits are counted by hand."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

COMMAND = [sys.executable, "-m", "blockyard.server"]
UNREACHABLE = "http://127.0.0.1:1"
"""Nobody listens there."""

TRACE = [
    # 5 blocks of 512 tokens, one of them the null block: 4 to use.      cached with 4 | with 100
    {"input_length": 1300, "hash_ids": [1, 2, 3]},  # 3 blocks, 2 full             0         0
    {"input_length": 1300, "hash_ids": [1, 2, 4]},  # begins alike              1024      1024
    {"input_length": 1024, "hash_ids": [1, 2]},  # the last token is computed    512       512
    {"input_length": 2500, "hash_ids": [5, 6, 7, 8, 9]},  # 5 blocks        refused         0
    {"input_length": 1600, "hash_ids": [10, 11, 12, 13]},  # 4 blocks              0         0
    {"input_length": 600, "hash_ids": [1, 2]},  # was evicted by the one before    0       512
]
CACHED_WITH_4 = 1536
CACHED_WITH_100 = 2048


@dataclass
class Serving:
    """A server process that is ready."""

    url: str
    process: subprocess.Popen[str]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return self.process.wait(30)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Ours without ``BLOCKYARD_*``, and with ``variables``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BLOCKYARD_")}
    return {**kept, **variables}


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``blockyard`` with ``arguments`` to its end, in an environment with ``variables``."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def start(*arguments: str | Path, **variables: str) -> subprocess.Popen[str]:
    """``blockyard`` with ``arguments``, not waited for."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[Serving]:
    """A server that is ready; on a free port unless told otherwise."""
    with start("serve", *(arguments or ("--port", "0")), **variables) as process:
        try:
            ready = require(process.stdout).readline().split()
            if not ready:
                raise AssertionError(require(process.stderr).read())
            yield Serving(ready[-1], process)
        finally:
            process.kill()


def require(stream: IO[str] | None) -> IO[str]:
    """A stream that is a pipe."""
    assert stream is not None
    return stream


def write_trace(folder: Path, *lines: object) -> Path:
    """A trace file of ``lines``: strings as they are, everything else as JSON."""
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def replay(*arguments: str | Path, **variables: str) -> dict[str, Any]:
    """The one object that ``blockyard replay --json`` prints."""
    done = run("replay", *arguments, "--json", **variables)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
