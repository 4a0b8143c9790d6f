"""NATS servers of our own, with JetStream, on one machine: started, killed, paused and started again.

folder/n1.conf   what the first is told        folder/n1/    its store, which outlives it
folder/n1.log    what it said
"""

import json
import os
import signal
import subprocess  # nosec B404  # starts nats-server alone
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from blockyard.server.trial.nats_binary import find_nats_server
from blockyard.server.trial.places import NatsPlace, loopback_places

MAX_PAYLOAD_BYTES = 8 * 2**20
"""Of a message: a batch of commands, all of one turn of a server's loop, is one."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_PAUSE_S = 0.05
_ASK_TIMEOUT_S = 2.0
_CLUSTER = "trial"
_OK = 200


class NatsFailedError(Exception):
    """A server ended by itself, or did not get ready; the text has the end of what it said."""


class NatsServers:
    """``places``, or else ``num_servers`` on loopback, with all that they keep in ``folder``.

    Entering the ``with`` block starts them, and leaving it stops them. They are n1, n2, ... to each other;
    here they go by their index, from 0. Signals from the keyboard do not reach them.
    """

    def __init__(
        self, folder: Path, *, num_servers: int = 3, places: Sequence[NatsPlace] | None = None
    ) -> None:
        self.places = tuple(places) if places is not None else loopback_places(num_servers)
        self._folder = folder
        self._binary = find_nats_server()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()

    @property
    def urls(self) -> str:
        """All of them, with commas between: what ``--cluster`` takes."""
        return ",".join(place.url for place in self.places)

    @property
    def running(self) -> tuple[int, ...]:
        """Those that run and are not paused."""
        return tuple(sorted(set(self._processes) - self._paused))

    def process_id(self, index: int) -> int:
        """Of one that runs."""
        return self._processes[index].pid

    def start(self) -> None:
        """All of them, until they are ready.

        Raises:
            NatsFailedError: They did not get so far.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for index in range(len(self.places)):
            self._configure(index)
            self._begin(index)
        self.wait_until_ready()

    def kill(self, index: int) -> None:
        """At once, and wait until it is gone."""
        self._end(index, signal.SIGKILL)

    def pause(self, index: int) -> None:
        """It does nothing from here on, and its connections stay."""
        process = self._processes[index]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        self._paused.add(index)

    def resume(self, index: int) -> None:
        """It goes on."""
        self._paused.discard(index)
        self._processes[index].send_signal(signal.SIGCONT)

    def begin_restart(self, index: int) -> None:
        """Start it on what it has stored, after an orderly end if it runs, and do not wait."""
        if index in self._processes:
            self._end(index, signal.SIGTERM)
        self._begin(index)

    def restart(self, index: int) -> None:
        """As `begin_restart`, until all that run are ready.

        Raises:
            NatsFailedError: They did not get so far.
        """
        self.begin_restart(index)
        self.wait_until_ready()

    def stop(self) -> None:
        """All of them, in order; what they have stored stays."""
        for index in tuple(self._paused):
            self.resume(index)
        for process in self._processes.values():
            process.terminate()
        for index in tuple(self._processes):
            self._end(index, signal.SIGTERM)

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until JetStream has a leader, whom all that run follow, and every stream's replicas on them too.

        Raises:
            NatsFailedError: One ended, or that was not so for ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self._is_ready():
            for index in self.running:
                if self._processes[index].poll() is not None:
                    raise NatsFailedError(f"n{index + 1} ended: {self._last_words(index)}")
            if time.monotonic() > deadline_s:
                raise NatsFailedError(
                    f"no leader after {timeout_s:.0f} s: {self._last_words(self.running[0])}"
                )
            time.sleep(_PAUSE_S)

    def leader(self) -> int | None:
        """The index of the one that leads JetStream; None while they have none."""
        for index in self.running:
            state = self.state(index, "/jsz")
            name = state and (state.get("meta_cluster") or {}).get("leader")
            if name:
                return int(name.removeprefix("n")) - 1
        return None

    def state(self, index: int, path: str) -> dict[str, Any] | None:
        """What its monitor says at ``path``, such as ``/jsz?streams=true``; None if it does not answer."""
        url = self.places[index].monitor + path
        try:
            with urllib.request.urlopen(url, timeout=_ASK_TIMEOUT_S) as reply:  # noqa: S310  # nosec B310  # our own
                document: dict[str, Any] = json.loads(reply.read())
        except (OSError, urllib.error.URLError, ValueError):
            return None
        return document

    def _is_ready(self) -> bool:
        if not self.running or not all(map(self._is_healthy, self.running)):
            return False
        if len(self.places) == 1:
            return True
        leader = self.leader()
        state = self.state(leader, "/jsz") if leader in self.running else None
        if leader is None or state is None:
            return False
        current = {peer["name"] for peer in state["meta_cluster"].get("replicas", ()) if peer["current"]}
        return {f"n{index + 1}" for index in self.running if index != leader} <= current

    def _is_healthy(self, index: int) -> bool:
        health, state = self.state(index, "/healthz"), self.state(index, "/jsz")
        if health is None or state is None or health.get("status") != "ok":
            return False
        store = Path(state["config"]["store_dir"])  # another's server may have our ports
        return store.is_relative_to(self._folder.resolve() / f"n{index + 1}")

    def _configure(self, index: int) -> None:
        place = self.places[index]
        told: dict[str, Any] = {  # JSON is a form of its configuration
            "server_name": f"n{index + 1}",
            "listen": f"{place.host}:{place.client_port}",
            "http": f"{place.host}:{place.monitor_port}",
            "max_payload": MAX_PAYLOAD_BYTES,
            "jetstream": {"store_dir": str(self._folder.resolve() / f"n{index + 1}")},
        }
        if len(self.places) > 1:
            told["cluster"] = {
                "name": _CLUSTER,
                "listen": f"{place.host}:{place.route_port}",
                "routes": [other.route for other in self.places],
            }
        (self._folder / f"n{index + 1}.conf").write_text(json.dumps(told, indent=2))

    def _begin(self, index: int) -> None:
        command = [*self.places[index].prefix, self._binary, "-c", str(self._folder / f"n{index + 1}.conf")]
        with (self._folder / f"n{index + 1}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(  # noqa: S603  # nosec B603  # nats-server
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )

    def _end(self, index: int, number: int) -> None:
        process = self._processes.pop(index)
        self._paused.discard(index)
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_words(self, index: int) -> str:
        return (self._folder / f"n{index + 1}.log").read_text(errors="replace")[-2_000:]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
