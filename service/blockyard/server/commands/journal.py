"""``blockyard journal``: what a data directory has written down."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from blockyard.core.commands import Command, Idempotent, unkeyed
from blockyard.server.commands.data_dir import data_dir_type, reading
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.journal.errors import DamagedJournal
from blockyard.server.journal.interface import Journal, StoredPool
from blockyard.server.journal.line import Line, commands_after
from blockyard.server.settings import DEFAULT_DATA_DIR

MAX_TEXT = 60
"""Characters of a field that people are shown."""


@click.command("journal")
@click.argument("pool", required=False)
@click.option(
    "--data-dir",
    type=data_dir_type,
    default=DEFAULT_DATA_DIR,
    envvar="BLOCKYARD_DATA_DIR",
    show_envvar=True,
    help="A server's.",
)
@click.option(
    "--after", type=click.IntRange(min=0), default=0, help="Begin behind the command of this number."
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many commands of each pool.")
@json_option
def command(pool: str | None, data_dir: Path, after: int, limit: int | None, as_json: bool) -> None:
    """Print the commands of POOL, or of all pools, that a data directory holds beyond its snapshots.

    One a line: its number, its time, what was asked. A server may be running on the directory. With --json,
    one object a line.

    \b
        blockyard journal --data-dir blockyard-data llama-70b --limit 20
    """  # noqa: D301 - \b keeps click from filling the example
    with reading(data_dir, owned=False) as journal:
        stored = [each for each in journal.pools() if pool in (None, each.name)]
        if pool is not None and not stored:
            raise click.ClickException(f"{data_dir} has no pool {pool!r}")
        for each in stored:
            snapshot = journal.snapshot(each.key)
            if snapshot is not None:
                click.echo(f"{each.name}: commands up to {snapshot.number} are in its snapshot", err=True)
            for number, now_ms, asked in itertools.islice(_commands(journal, each, after), limit):
                if as_json:
                    print_json(_document(each.name, number, now_ms, asked))
                else:
                    click.echo(f"{each.name} {number} {_time(now_ms)} {_sentence(asked)}")


def _commands(journal: Journal, stored: StoredPool, after: int) -> Iterator[tuple[int, int, Command]]:
    snapshot = journal.snapshot(stored.key)
    line = Line(stored.key, snapshot.number if snapshot else 0)
    try:
        for now_ms, asked in commands_after(journal, stored, line):
            if line.number > after:
                yield line.number, now_ms, asked
    except DamagedJournal:
        later = journal.snapshot(stored.key)
        if later is None or later.number <= line.number:
            raise
        click.echo(f"{stored.name}: commands up to {later.number} went into a snapshot meanwhile", err=True)


def _document(pool: str, number: int, now_ms: int, asked: Command) -> dict[str, Any]:
    inner = unkeyed(asked)
    return {
        "pool": pool,
        "number": number,
        "time_ms": now_ms,
        "command": type(inner).__name__,
        **({"idempotency_key": asked.key} if isinstance(asked, Idempotent) else {}),
        "fields": _plain(asdict(inner)),
    }


def _plain(value: Any) -> Any:
    """For JSON: bytes as hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _sentence(asked: Command) -> str:
    """The command's name and what is not left out of it."""
    inner = unkeyed(asked)
    given = {
        name: value for name, value in _flat(_plain(asdict(inner))) if value not in (None, "", [], {}, False)
    }
    return " ".join([type(inner).__name__, *(f"{name}={_short(value)}" for name, value in given.items())])


def _flat(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict) and all(isinstance(key, str) and key.isidentifier() for key in value):
            yield from _flat(value)
        else:
            yield name, value


def _short(value: Any) -> str:
    text = f"{value}"
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
