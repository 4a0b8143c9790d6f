"""A node of a cluster: ``blockyard serve --cluster``, at its place, killed, paused and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.network import NodePlace
from cluster.wall_clock import WallClock
from server_process import READY, TIMEOUT_S, environment

SERVER = "blockyard.server"
LEASE_MS = 2000


def node_name(number: int) -> str:
    """Of the node of this number."""
    return f"node-{number}"


class NodeProcess:
    """The node of this ``number``; what it says goes to files in ``folder``. Does not run at first.

    Args:
        number: Its own, which gives it its name.
        place: Where it is.
        folder: There.
        module: What it runs: the server, or one with a fault planted in it.
        clock: Its wall clock, if that is to be set; else it has the machine's.
        options: Of the command line, beside those that make it a node.
    """

    def __init__(
        self,
        number: int,
        place: NodePlace,
        folder: Path,
        *,
        module: str = SERVER,
        clock: WallClock | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.number = number
        self.name = node_name(number)
        self.url = place.url
        self.clock = clock
        self._module = module
        self._place = place
        self._options = options
        self._out, self._log = folder / f"{self.name}.out", folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False

    @property
    def is_running(self) -> bool:
        """It was started, and not ended by us; it may be paused."""
        return self._process is not None

    @property
    def process_id(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it has said so far."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def begin(self) -> None:
        """Start it, and do not wait."""
        assert self._process is None, f"{self.name} runs already"
        place = self._place
        options = ["--host", place.host, "--port", str(place.port), "--insecure", "--log-level", "info"]
        options += ["--cluster", place.nats_urls, "--node-name", self.name, "--advertise-url", place.url]
        options += ["--node-lease-ms", str(LEASE_MS), *self._options]
        clock = () if self.clock is None else self.clock.prefix
        command = [*place.prefix, *clock, sys.executable, "-m", self._module, "serve", *options]
        variables = {"PYTHONPATH": str(Path(__file__).parents[1])}
        with self._out.open("wb") as out, self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment(variables), stdout=out, stderr=log)

    def wait_until_ready(self) -> None:
        """It has printed that it is."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while READY not in self._out.read_text():
            assert self._running.poll() is None, f"{self.name} ended: {self.last_words()}"
            assert time.monotonic() < deadline_s, f"{self.name} does not get ready: {self.last_words()}"
            time.sleep(0.02)

    def kill(self) -> None:
        """At once, and wait until it is gone."""
        assert self._end(signal.SIGKILL) == -signal.SIGKILL, (
            f"{self.name} ended by itself: {self.last_words()}"
        )

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """It does nothing from here on, and its connections stay."""
        self._running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process_id, os.WSTOPPED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        """It goes on, and does not know that it stood still."""
        self.is_paused = False
        self._running.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-3_000:]

    def _end(self, number: int) -> int:
        process, self._process = self._running, None
        if self.is_paused:
            self.is_paused = False
            process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            return process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{self.name} does not end: {self.last_words()}") from error
        finally:
            process.kill()
            process.wait()
