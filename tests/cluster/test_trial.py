"""Parts of a trial: processes that end with their starter, and nodes that do not get ready."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blockyard.server.trial.node_process import NodeFailedError, NodeProcess
from blockyard.server.trial.places import free_ports
from server_process import first_line, require
from waiting import wait_for

STARTER = """
import subprocess, sys
from blockyard.server.trial.bound import bound_command

child = subprocess.Popen([*bound_command(), sys.executable, "-c", "print('there', flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def is_there(process_id: int) -> bool:
    """Whether it runs; one that has ended and waits to be asked for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_what_is_bound_is_killed_with_its_starter() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        bound = int(first_line(require(starter.stdout)))
        assert is_there(bound)
        starter.kill()
    wait_for(lambda: not is_there(bound))


def test_what_is_bound_to_one_who_is_gone_does_not_begin() -> None:
    gone = str(os.getpid())  # not the parent of what is started below
    command = [sys.executable, "-m", "blockyard.server.trial.bound", gone, "echo", "begun"]
    code = f"import subprocess; print(subprocess.run({command!r}, capture_output=True, text=True))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "returncode=1, stdout=''" in done.stdout


def test_a_node_that_ends_at_once_says_why(tmp_path: Path) -> None:
    [port] = free_ports(1)
    node = NodeProcess("node-1", port, ("--no-such-option",), tmp_path / "node-1.log")
    with pytest.raises(NodeFailedError, match=r"(?s)node-1 ended: .*No such option"):
        node.wait_until_ready(time.monotonic() + 30)
    node.end()
    assert node.exit_status == 2


def test_a_node_that_is_not_ready_in_time_says_so(tmp_path: Path) -> None:
    [port] = free_ports(1)
    node = NodeProcess("node-1", port, (), tmp_path / "node-1.log")
    with pytest.raises(NodeFailedError, match="node-1 was not ready in time: it logged nothing"):
        node.wait_until_ready(time.monotonic())
    node.begin_stop()
    node.end()
    assert node.exit_status is not None
