"""Reaching a server from the command line: its URL, and its refusals as sentences with an exit status."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from blockyard.client.client import Client
from blockyard.client.errors import ConnectionLost
from blockyard.client.retry import NO_RETRY, RetryPolicy
from blockyard.core.errors import BlockyardError, PoolNotFound

DEFAULT_URL = "http://127.0.0.1:8484"

url_option = click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    envvar="BLOCKYARD_URL",
    show_envvar=True,
    help="The server to ask.",
)


@contextmanager
def connected(url: str, retries: RetryPolicy = NO_RETRY) -> Iterator[Client]:
    """A client of the server at ``url``; what goes wrong with it ends the command with a sentence.

    Raises:
        click.BadParameter: ``url`` is none: status 2.
        click.ClickException: The server refused or does not answer: status 1.
    """
    try:
        client = Client(url, retries=retries)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--url'") from error
    try:
        with client:
            yield client
    except ConnectionLost as error:
        raise click.ClickException(
            f"no answer from a server at {url} ({error}): start one with 'blockyard serve', "
            "or name another with --url or BLOCKYARD_URL"
        ) from error
    except PoolNotFound as error:
        what = str(error).partition(":")[0]
        raise click.ClickException(f"{what}: 'blockyard pools --url {url}' lists those there are") from error
    except BlockyardError as error:
        raise click.ClickException(f"{error.code}: {error}") from error
