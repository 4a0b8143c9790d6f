"""``blockyard serve``: every field of `Settings` as an option and as a ``BLOCKYARD_*`` variable.

The options are made from the fields, and their help from the class's docstring, so that a new setting is
an option as soon as it is a field.
"""

import errno
import inspect
import re
import socket
import sys
from dataclasses import Field, fields
from typing import Any, get_type_hints

import click

from blockyard.server.settings import Settings

HELP = """Run a server until SIGTERM or SIGINT, which let the requests in flight end.

It prints one line with its URL on standard output once it is ready, and logs on standard error.

\b
    blockyard serve --port 8484
    BLOCKYARD_PORT=8484 BLOCKYARD_LOG_FORMAT=console blockyard serve
"""

TYPES: dict[str, click.ParamType[Any]] = {
    "port": click.IntRange(0, 65_535),
    "log_level": click.Choice(["debug", "info", "warning", "error"]),
    "log_format": click.Choice(["json", "console"]),
}
"""What a field's own type does not tell."""


def setting_options(kind: type) -> list[click.Option]:
    """An option for each field of a dataclass of settings, in its order."""
    hints = get_type_hints(kind)
    sentences = attribute_sentences(kind)
    return [_option(field, hints[field.name], sentences.get(field.name)) for field in fields(kind)]


def attribute_sentences(kind: type) -> dict[str, str]:
    """What the ``Attributes:`` of a class's docstring say, by name; nothing where docstrings are stripped."""
    _, _, section = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.replace("``", "").split()) for name, text in entries}


def check_address(host: str, port: int) -> None:
    """See that the server will be able to listen, for a sentence in place of a log of the event loop.

    Raises:
        click.ClickException: It will not: the port is in use, or the address is not this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise click.ClickException(f"--host {host}: {error.strerror}") from error
    failures = [failure for failure in map(_bind_failure, found) if failure is not None]
    for failure in failures:
        if failure.errno == errno.EADDRINUSE:
            raise click.ClickException(
                f"port {port} of {host} is in use: choose another with --port, or 0 for a free one"
            )
        if failure.errno == errno.EACCES:
            raise click.ClickException(f"port {port} needs privileges: choose one from 1024 on with --port")
    if len(failures) == len(found):  # a host name may have addresses that this machine does not speak
        raise click.ClickException(f"cannot listen on {host}: {failures[0].strerror}")


def _bind_failure(found: tuple[Any, ...]) -> OSError | None:
    family, kind, protocol, _, address = found
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def _option(field: Field[Any], kind: Any, sentence: str | None) -> click.Option:
    return click.Option(
        [f"--{field.name.replace('_', '-')}"],
        type=TYPES.get(field.name) or _click_type(field.name, kind),
        default=field.default,
        envvar=f"BLOCKYARD_{field.name.upper()}",
        show_envvar=True,
        help=sentence,
    )


def _click_type(name: str, kind: Any) -> Any:
    if kind is int:
        return click.IntRange(min=1 if name.startswith("max_") else 0)
    return kind


def _run(**values: Any) -> None:
    values.pop("volatile", None)
    settings = Settings(**values)
    check_address(settings.host, settings.port)
    from blockyard.server.serve import serve  # noqa: PLC0415 - not for a --help

    sys.exit(serve(settings))


_VOLATILE = click.Option(
    ["--volatile"],
    is_flag=True,
    envvar="BLOCKYARD_VOLATILE",
    show_envvar=True,
    help="Keep all state in memory only: it ends with the server. So far the only way there is.",
)

command = click.Command("serve", callback=_run, params=[*setting_options(Settings), _VOLATILE], help=HELP)
