"""``blockyard serve``: placeholder of today, every option by its default."""

import sys
from dataclasses import fields
from typing import Any

import click
from blockyard.server.settings import Settings


@click.command()
def command(**values: Any) -> None:
    """Run a server."""
    from blockyard.server.serve import serve  # noqa: PLC0415

    sys.exit(serve(Settings(**values)))


for _field in fields(Settings):
    command = click.option(
        "--" + _field.name.replace("_", "-"), default=_field.default, show_default=True, envvar="BLOCKYARD_" + _field.name.upper()
    )(command)
