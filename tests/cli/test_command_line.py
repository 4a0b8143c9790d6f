import subprocess
import sys
from importlib.metadata import version

import pytest

from cli.support import environment, run


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
        check=False,
    )


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"blockyard {version('blockyard')}\n"


def test_help_names_every_command() -> None:
    shown = run("--help").stdout
    assert [name for name in ("serve", "replay", "pools", "stats", "audit") if f"\n  {name}" in shown] == [
        "serve",
        "replay",
        "pools",
        "stats",
        "audit",
    ]


@pytest.mark.parametrize("command", ["serve", "replay", "pools", "stats", "audit"])
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    done = run(command, "--help")
    assert f"    blockyard {command}" in done.stdout
    assert done.returncode == 0


def test_an_unknown_command_is_a_mistake_in_the_arguments() -> None:
    done = run("serv")
    assert done.returncode == 2
    assert "No such command 'serv'" in done.stderr


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("click", ["--help"]), ("uvicorn", ["serve", "--port", "0"]), ("rich", ["replay", "--requests", "1"])],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package: str, arguments: list[str]) -> None:
    done = without(package, *arguments)
    assert done.returncode == 1
    assert done.stderr == (
        f"blockyard: the package {package!r} is not installed: pip install 'blockyard[server]'\n"
    )
