"""How a command reaches a server: where it is, as whom, over which TLS.

Nothing of `blockyard.client` is imported, which takes its time: see `blockyard.server.commands.connection`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

DEFAULT_URL = "http://127.0.0.1:8484"
TOKEN_VARIABLE = "BLOCKYARD_TOKEN"  # noqa: S105  # nosec B105  # its name

file_type = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a server is reached.

    Attributes:
        url: The server's, or those of several nodes of a cluster, with commas between them.
        token: What is shown to it; None for none.
        ca_cert: Authorities that may have signed its certificate; None: those that are trusted anyway.
        client_cert: What is shown of oneself; None for nothing.
        client_key: Its private key; None where it stands in the same file.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None


url_option = click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    envvar="BLOCKYARD_URL",
    show_envvar=True,
    help="The server to ask; of a cluster, several nodes with commas between them.",
)

_ACCESS_OPTIONS = (
    click.option(
        "--token-from",
        type=file_type,
        envvar="BLOCKYARD_TOKEN_FROM",
        show_envvar=True,
        help=f"File with nothing but the token to show. Default: the token in {TOKEN_VARIABLE}, if any.",
    ),
    click.option(
        "--ca-cert",
        type=file_type,
        envvar="BLOCKYARD_CA_CERT",
        show_envvar=True,
        help="Authorities in PEM that may have signed the server's certificate.",
    ),
    click.option(
        "--client-cert",
        type=file_type,
        envvar="BLOCKYARD_CLIENT_CERT",
        show_envvar=True,
        help="Certificate in PEM to show to a server that asks for one.",
    ),
    click.option(
        "--client-key",
        type=file_type,
        envvar="BLOCKYARD_CLIENT_KEY",
        show_envvar=True,
        help="Its private key, if that is in another file.",
    ),
)


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say how a server is reached, which ``command`` gets as one: ``server``."""
    return url_option(access_options(command))


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same without ``--url``, which is the command's own; ``server`` is None where that is None."""

    @wraps(command)
    def reaching(
        *,
        url: str | None,
        token_from: Path | None,
        ca_cert: Path | None,
        client_cert: Path | None,
        client_key: Path | None,
        **options: Any,
    ) -> None:
        server = None
        if url is not None:
            server = Reach(
                url=url,
                token=_token(token_from),
                ca_cert=ca_cert,
                client_cert=client_cert,
                client_key=client_key,
            )
        command(server=server, **options)

    decorated: Callable[..., None] = reaching
    for option in reversed(_ACCESS_OPTIONS):
        decorated = option(decorated)
    return decorated


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read", param_hint="'--token-from'") from error
