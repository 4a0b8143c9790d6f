"""Tables for people: at the terminal's width, 80 columns where there is none."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line, under ``title``."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    console = Console()
    console.print(Text(title))
    console.print(table)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under ``columns``: the first is a name, on the left; the others are figures, on the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def percent(share: float | None) -> str:
    """``share`` (0 to 1) as people read it; None is a share of nothing yet, which is not 0 %."""
    return "no queries yet" if share is None else f"{100 * share:.1f} %"
