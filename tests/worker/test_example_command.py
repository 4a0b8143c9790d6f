"""The example's command: what it refuses before it starts a process, and that it leaves none behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from examples.two_processes.command_line import main
from examples.two_processes.launcher import serve
from examples.two_processes.settings import Settings
from server_process import running_server
from waiting import wait_for
from worker.made_pools import CLIENTS

COMMAND = [sys.executable, "-m", "examples.two_processes"]
NUM_PROCESSES = 5
"""The launcher, its server, the two that give the example its name, and one of `multiprocessing`."""


def invoke(*arguments: str) -> Result:
    """The command in our own process: for what it refuses before it starts another."""
    return CliRunner().invoke(main, arguments)


def session(leader: int) -> list[int]:
    """Processes of the session that ``leader`` began, which run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, leads, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(leads) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "nonsense"], "'--device': 'nonsense' is no device: cpu, cuda, cuda:1, ..."),
        (["--device", "meta"], "'--device': torch has no 'meta' to compute on here"),
        (["--device", "cuda:99"], "'--device': torch has no 'cuda:99' to compute on here"),
        (["--url", "foo"], "'--url': not the URL of a server, http://host:port: 'foo'"),
        (["--seed", "-1"], "'--seed': -1 is not in the range"),
        (["--seed", str(2**64)], f"'--seed': {2**64} is not in the range"),
        (["--num-blocks", "1"], "'--num-blocks': 1 is not in the range"),
        (["--num-blocks", "42"], "'--num-blocks': 42 cannot hold the longest sequence: it takes at least 43"),
        (["--model", "hybrid", "--layout", "LHBNC"], "layout LHBNC cannot express"),
    ],
)
def test_what_could_never_be_served_is_a_mistake_in_the_arguments(arguments: list[str], said: str) -> None:
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_the_fewest_blocks_that_a_refusal_names_are_enough() -> None:
    with running_server("--log-level", "warning") as server:
        report = serve(server.url, Settings(num_blocks=43, num_requests=4, num_rounds=1), lambda _: None)
    assert report.rounds[0].num_requests == 4


def test_h_is_short_for_help() -> None:
    assert invoke("-h").stdout == invoke("--help").stdout


@pytest.mark.parametrize("package", ["torch", "click"])
def test_a_missing_package_is_named_with_the_extras_that_bring_it(package: str) -> None:
    code = (
        f"import runpy, sys; sys.modules[{package!r}] = None; "
        "runpy.run_module('examples.two_processes', run_name='__main__')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=CLIENTS, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == (
        f"two_processes: the package {package!r} is not installed: pip install 'blockyard[worker,server]'\n"
    )


@pytest.mark.parametrize("fault", ["--kill-worker-at-step", "--swap-blocks-at-step"])
def test_a_fault_that_was_not_planted_is_a_failure(fault: str) -> None:
    options = ["--num-requests", "4", "--num-rounds", "1", fault, "9999"]
    ran = subprocess.run([*COMMAND, *options], cwd=CLIENTS, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "as they should be" in ran.stdout
    assert ran.stderr.startswith(f"Error: {fault}: no ")


def test_of_a_worker_that_dies_at_each_start_one_line_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        running_server("--log-level", "warning") as server,
        pytest.raises(RuntimeError, match=r"^3 worker processes have died: RuntimeError: .*nonsense$"),
    ):
        serve(server.url, Settings(device="nonsense"), lambda _: None)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_process_outlives_the_launcher(number: int, status: int) -> None:
    with subprocess.Popen(
        [*COMMAND, "--num-rounds", "10000"], cwd=CLIENTS, start_new_session=True
    ) as launcher:
        try:
            wait_for(lambda: len(session(launcher.pid)) == NUM_PROCESSES)
            launcher.send_signal(number)
            assert launcher.wait(30) == status
            wait_for(lambda: not session(launcher.pid))
        finally:
            for process in session(launcher.pid):
                os.kill(process, signal.SIGKILL)
