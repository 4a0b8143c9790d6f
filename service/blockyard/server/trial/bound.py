"""Becomes another program, one that is killed when whoever started it dies.

Run as a module: the starter's process id, then the other program's command line. So not even SIGKILL of the
starter leaves a process behind; on systems other than Linux, which have no such bond, it does.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""Of ``linux/prctl.h``: the signal that a process gets when its parent dies. It outlasts exec."""


def bound_command() -> tuple[str, ...]:
    """What to put before a command line, so that the program ends with this process."""
    return sys.executable, "-m", __name__, str(os.getpid())


def _bind(parent_id: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:  # it died before we asked
        sys.exit(1)


if __name__ == "__main__":
    _bind(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  # nosec B606  # what we were told to become
