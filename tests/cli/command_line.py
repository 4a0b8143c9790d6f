"""The command line called in our own process, and what it says to programs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from blockyard.server.commands.root import blockyard
from server_process import environment, run

UNREACHABLE = "http://127.0.0.1:1"
"""Nobody listens there."""


def invoke(*arguments: str | Path, **variables: str) -> Result:
    """``blockyard`` with ``arguments`` in our own process, which saves the half second of a new one.

    For commands that leave nothing behind in the process; ``run`` for all others.
    """
    runner = CliRunner(env={"BLOCKYARD_URL": None, **variables})
    return runner.invoke(blockyard, [*map(str, arguments)], prog_name="blockyard")


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``blockyard`` in an interpreter that cannot import ``package``."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from blockyard.server.command_line import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def replay(*arguments: str | Path, **variables: str) -> dict[str, Any]:
    """The one object that ``blockyard replay --json`` prints."""
    done = run("replay", *arguments, "--json", **variables)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
