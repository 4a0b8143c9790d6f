"""Asking a server from the command line: its refusals as sentences with an exit status."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from blockyard.client.client import Client
from blockyard.client.errors import ConnectionLost
from blockyard.client.origins import origins_of
from blockyard.client.retry import RetryPolicy
from blockyard.client.tls import TlsFiles
from blockyard.core.errors import BlockyardError, PoolNotFound, Unauthorized
from blockyard.server.commands.reach import TOKEN_VARIABLE, Reach


def tls_files(server: Reach) -> TlsFiles | None:
    """The files for TLS that ``server`` is reached with; None for none."""
    files = TlsFiles(ca_cert=server.ca_cert, client_cert=server.client_cert, client_key=server.client_key)
    return None if files == TlsFiles() else files


@contextmanager
def connected(server: Reach, retries: RetryPolicy | None = None) -> Iterator[Client]:
    """A client of ``server``; what goes wrong with it ends the command with a sentence.

    Without ``retries``, each of its URLs is tried once.

    Raises:
        click.UsageError: The server's URL is none, or token or TLS cannot be used: status 2.
        click.ClickException: The server refused or does not answer: status 1.
    """
    try:
        origins = origins_of(server.url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--url'") from error
    retries = retries or RetryPolicy(max_attempts=len(origins))
    try:
        client = Client(origins, retries=retries, token=server.token, tls=tls_files(server))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        with client:
            yield client
    except ConnectionLost as error:
        raise click.ClickException(
            f"no answer from a server at {server.url} ({error}): start one with 'blockyard serve', "
            "or name another with --url or BLOCKYARD_URL; one with TLS wants https://, the --ca-cert that "
            "signed its certificate, and maybe a --client-cert"
        ) from error
    except PoolNotFound as error:
        what = str(error).partition(":")[0]
        raise click.ClickException(
            f"{what}: 'blockyard pools --url {server.url}' lists those there are"
        ) from error
    except Unauthorized as error:
        shown = "no token was shown" if server.token is None else "the server does not know this token"
        raise click.ClickException(f"{error.code}: {shown}: see {TOKEN_VARIABLE} and --token-from") from error
    except BlockyardError as error:
        raise click.ClickException(f"{error.code}: {error}") from error
