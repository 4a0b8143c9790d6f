"""A server of the replay's own: a child process on a free port, which ends with the replay."""

import os
import re
import select
import subprocess
import sys
from types import TracebackType
from typing import Self

import click

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0

_READY = re.compile(r"blockyard is ready at (\S+)")


class OwnServer:
    """Starts at once, and listens some time later: `wait_until_ready`. Leaving its ``with`` block stops it.

    ``BLOCKYARD_*`` variables are not handed on: they are for the server that serves, and might name its data.
    """

    def __init__(self) -> None:
        arguments = ["serve", "--host", "127.0.0.1", "--port", "0", "--volatile", "--log-level", "warning"]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "blockyard.server", *arguments],
            stdin=subprocess.DEVNULL,
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
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
