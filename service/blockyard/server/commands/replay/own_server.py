"""A server of the replay's own: a child process on a free port, which ends with the replay.

Run as a module it is that child: the ``blockyard`` command, until its standard input ends.
"""

import os
import re
import select
import signal
import subprocess  # nosec B404  # starts our own program alone
import sys
import threading
from types import TracebackType
from typing import Self

import click

from blockyard.server.command_line import main

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0

_READY = re.compile(r"blockyard is ready at (\S+)")


class OwnServer:
    """Starts at once, and listens some time later: `wait_until_ready`. Leaving its ``with`` block stops it.

    It holds a pipe to the server, which stops as well when the pipe ends: so even SIGKILL leaves no server.

    ``BLOCKYARD_*`` variables are not handed on: they are for the server that serves, and might name its data.
    """

    def __init__(self) -> None:
        arguments = ["serve", "--host", "127.0.0.1", "--port", "0", "--volatile", "--log-level", "warning"]
        self._process = subprocess.Popen(  # noqa: S603  # nosec B603  # our own program
            [sys.executable, "-m", __name__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("BLOCKYARD_")},
            process_group=0,  # Ctrl-C is for us: the pool is deleted before the server goes
        )

    def wait_until_ready(self) -> str:
        """The server's URL, once it takes requests.

        Raises:
            click.ClickException: It ended, or said nothing for `START_TIMEOUT_S`.
        """
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = self._process.stdout.readline().decode(errors="replace") if readable else ""
        found = _READY.match(line)
        if found is None:
            raise click.ClickException(
                "the replay's own server did not start: see 'blockyard serve', or name one with --url"
            )
        return found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes its pipes
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()


def _end_with_standard_input() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written to it
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    main()
