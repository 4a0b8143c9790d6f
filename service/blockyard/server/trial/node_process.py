"""A node of a trial: ``blockyard serve --cluster`` as a process of its own."""

import os
import re
import select
import subprocess  # nosec B404  # starts our own program alone
import sys
import time
from pathlib import Path

from blockyard.server.trial.bound import bound_command
from blockyard.server.trial.places import LOOPBACK

STOP_TIMEOUT_S = 15.0
_READY = re.compile(r"blockyard is ready at (\S+)")


class NodeFailedError(Exception):
    """A node ended, or was not ready in time; the text has the end of what it logged."""


class NodeProcess:
    """Starts at once, and answers some time later: `wait_until_ready`. It ends when this process does.

    Signals from the keyboard do not reach it, nor do ``BLOCKYARD_*`` variables, which are for a server that
    serves.

    Args:
        name: The node's.
        port: It listens there, on loopback.
        options: More of ``blockyard serve``.
        log: The file that it logs to.

    Attributes:
        name, port: As given.
    """

    def __init__(self, name: str, port: int, options: tuple[str, ...], log: Path) -> None:
        self.name = name
        self.port = port
        self._log = log
        command = [sys.executable, "-m", "blockyard.server", "serve", "--host", LOOPBACK, "--port", str(port)]
        with log.open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603  # nosec B603  # our own program
                [*bound_command(), *command, "--node-name", name, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                env={name: value for name, value in os.environ.items() if not name.startswith("BLOCKYARD_")},
                process_group=0,
            )

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def process_id(self) -> int:
        """Its own."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """What it ended with, a signal as a negative number; None while it runs."""
        return self._process.poll()

    def wait_until_ready(self, deadline_s: float) -> None:
        """Until it takes requests.

        Args:
            deadline_s: By when, on the monotonic clock.

        Raises:
            NodeFailedError: It ended, or was not ready by then.
        """
        assert self._process.stdout is not None
        left_s = max(deadline_s - time.monotonic(), 0)
        readable, _, _ = select.select([self._process.stdout], [], [], left_s)
        line = self._process.stdout.readline().decode(errors="replace") if readable else ""
        if _READY.match(line) is None:
            how = "ended" if readable else "was not ready in time"
            raise NodeFailedError(f"{self.name} {how}: {self._last_words()}")

    def begin_stop(self) -> None:
        """Tell it to end in order."""
        self._process.terminate()

    def end(self) -> None:
        """Wait until it has ended; where that takes too long, kill it."""
        with self._process:  # closes its pipe
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:].strip() or "it logged nothing"
