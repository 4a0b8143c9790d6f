"""The tables of a report: a name on the left, figures on the right, and an end where lists are long."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MAX_ROWS = 12
"""Of a long list, unless all are asked for."""


def new_table(name: str, figures: Sequence[str | Text]) -> Table:
    """A table without rows, with these headings."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(name, overflow="fold")
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_heading(console: Console, words: str) -> None:
    """The title of what follows."""
    console.print()
    console.print(Text(words, style="bold"))


def print_rest(console: Console, num_rows: int, limit: int | None, what: str) -> None:
    """How many rows were left out, if any were."""
    if limit is not None and num_rows > limit:
        console.print(Text(f"... and {num_rows - limit:,} more {what}: --tensors prints all, --json too"))
