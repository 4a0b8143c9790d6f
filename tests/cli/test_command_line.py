from importlib.metadata import version

import pytest

from blockyard.core.compiled import is_compiled
from cli.command_line import invoke, without
from server_process import run

COMMANDS = ["serve", "plan", "replay", "pools", "stats", "top", "quota", "audit", "cluster", "journal"]


def test_version_is_that_of_the_package_and_says_whether_the_core_is_compiled() -> None:
    compiled = ", compiled" if is_compiled() else ""
    assert run("--version").stdout == f"blockyard {version('blockyard')}{compiled}\n"


def test_help_names_every_command() -> None:
    shown = run("--help").stdout
    assert [name for name in COMMANDS if f"\n  {name}" in shown] == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    done = invoke(command, "--help")
    assert f"    blockyard {command}" in done.stdout
    assert done.exit_code == 0


def test_an_unknown_command_is_a_mistake_in_the_arguments() -> None:
    done = run("serv")
    assert done.returncode == 2
    assert "No such command 'serv'" in done.stderr


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("click", ["--help"]), ("uvicorn", ["serve", "--port", "0"]), ("rich", ["pools"])],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package: str, arguments: list[str]) -> None:
    done = without(package, *arguments)
    assert done.returncode == 1
    assert done.stderr == (
        f"blockyard: the package {package!r} is not installed: pip install 'blockyard[server]'\n"
    )
