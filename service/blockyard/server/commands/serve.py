"""``blockyard serve``: every field of `Settings` as an option and as a ``BLOCKYARD_*`` variable.

The options are made from the fields and their rules, so that a new setting is an option as soon as it is a
field.
"""

import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from blockyard.server.access.exposure import Exposed, refuse_exposure
from blockyard.server.access.tls import TlsError, tls_context
from blockyard.server.access.token_file import TokenFile, TokenFileError
from blockyard.server.commands.listening import listening_sockets
from blockyard.server.settings import Rule, Settings, rule_of

HELP = """Run a server until SIGTERM or SIGINT, which let the requests in flight end.

It prints one line with its URL on standard output once it is ready, and logs on standard error. What it
answers is written down before, in --data-dir: a server that is started there again goes on from it.

\b
    blockyard serve --port 8484
    BLOCKYARD_PORT=8484 BLOCKYARD_LOG_FORMAT=console blockyard serve
"""


def setting_options() -> list[click.Option]:
    """An option for each field of `Settings`, in their order."""
    return [_option(known, rule_of(known)) for known in fields(Settings)]


def _option(known: Field[Any], rule: Rule) -> click.Option:
    is_flag = isinstance(known.default, bool)
    return click.Option(
        [f"--{known.name.replace('_', '-')}"],
        is_flag=is_flag,
        type=click.BOOL if is_flag else _click_type(rule, is_number=isinstance(known.default, int)),
        default=known.default,
        envvar=f"BLOCKYARD_{known.name.upper()}",
        show_envvar=True,
        help=rule.sentence,
    )


def _click_type(rule: Rule, *, is_number: bool) -> click.ParamType[Any]:
    if is_number:
        return click.IntRange(rule.at_least, rule.at_most)
    return click.Choice(rule.choices) if rule.choices else click.STRING


def _run(**values: Any) -> None:
    try:
        settings = Settings(**values)
    except ValueError as error:  # options that do not go together
        raise click.UsageError(str(error)) from error
    try:
        refuse_exposure(settings)
    except Exposed as error:
        raise click.UsageError(str(error)) from error
    try:  # before anything is opened; the server reads them again
        tls_context(settings)
        if settings.token_file:
            TokenFile(Path(settings.token_file)).read()
    except (TlsError, TokenFileError) as error:
        raise click.ClickException(str(error)) from error
    sockets = listening_sockets(settings.host, settings.port)
    # Half a second that neither a --help nor a mistake in the arguments should cost.
    from blockyard.server.cluster.errors import ClusterUnavailable  # noqa: PLC0415
    from blockyard.server.events.errors import EventsUnavailable  # noqa: PLC0415
    from blockyard.server.journal.errors import JournalError  # noqa: PLC0415
    from blockyard.server.serve import serve  # noqa: PLC0415

    try:
        sys.exit(serve(settings, sockets))
    except (ClusterUnavailable, EventsUnavailable, JournalError, TlsError, TokenFileError) as error:
        raise click.ClickException(str(error)) from error
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise click.ClickException(
            f"--traces needs the package {error.name!r}: pip install 'blockyard[tracing]'"
        ) from error


command = click.Command("serve", callback=_run, params=list(setting_options()), help=HELP)
