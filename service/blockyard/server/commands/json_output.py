"""What a command prints for programs: one JSON object a line."""

import json
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")


def print_json(document: dict[str, Any]) -> None:
    """``document`` on one line of standard output."""
    click.echo(json.dumps(document, separators=(", ", ": ")))
