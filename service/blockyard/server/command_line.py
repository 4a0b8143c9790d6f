"""The ``blockyard`` command: what the console script calls.

Nothing but the standard library is imported at the top, so that a base install can say what it lacks.
"""

import sys

EXTRA = "server"
"""The extra that brings what the command line needs."""


def main() -> None:
    """Run the command line and exit: 0 ok, 1 failure, 2 a mistake in the arguments."""
    try:
        from blockyard.server.commands.root import blockyard  # noqa: PLC0415 - see above

        blockyard(prog_name="blockyard")
    except ModuleNotFoundError as error:
        sys.exit(missing_package(error))


def missing_package(error: ModuleNotFoundError) -> str:
    """What to do about a package that is not installed.

    Raises:
        ModuleNotFoundError: What is missing is blockyard's own: no installation would help.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "blockyard"):
        raise error
    return f"blockyard: the package {package!r} is not installed: pip install 'blockyard[{EXTRA}]'"
