"""The figures as tables: for a terminal, and in Markdown."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.claims.figure import Figure

COLUMNS = ("claim", "what", "ours", "beside", "figure", "bound", "", "note")
NUMERIC = {"ours", "beside", "figure", "bound"}
COLOURS = {"within": "green", "missed": "red", "skipped": "yellow"}


def cells(figure: Figure) -> tuple[str, ...]:
    """A row of `COLUMNS`."""
    unit = "" if figure.unit == "x" else f" {figure.unit}"
    value = "" if figure.value is None else f"{figure.value:.3g}{unit}"
    if figure.value is not None and figure.value >= 1000:
        value = f"{figure.value:,.0f}{unit}"
    bound = "" if figure.bound is None else f"{'≥' if figure.is_floor else '≤'} {figure.bound:g}{unit}"
    return (
        figure.claim,
        figure.what,
        figure.ours,
        figure.beside,
        value,
        bound,
        figure.verdict,
        figure.note,
    )


def print_table(figures: Sequence[Figure], machine: Mapping[str, str], console: Console) -> None:
    """Print it."""
    table = Table(title=", ".join(f"{name} {value}" for name, value in machine.items()), title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in NUMERIC else "left", overflow="fold")
    before = ""
    for figure in figures:
        if before not in ("", figure.claim):
            table.add_section()
        before = figure.claim
        table.add_row(*cells(figure), style=COLOURS.get(figure.verdict, "") if console.is_terminal else "")
    console.print(table)


def markdown(figures: Sequence[Figure], machine: Mapping[str, str], command: str) -> str:
    """A page with the table, what it was measured on, and the command."""
    lines = [
        "# Side by side",
        "",
        "Both sides are measured in one run, in turns; a figure is the median over the rounds. It is a",
        "ratio of ours to what stands beside it (in `core`: how many times as fast), or has a unit. How",
        "it is measured stands at the top of its module in `claims`.",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in machine.items()),
        "",
        f"    {command}",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "|".join(" ---: " if name in NUMERIC else " --- " for name in COLUMNS) + "|",
        *("| " + " | ".join(cells(figure)) + " |" for figure in figures),
        "",
    ]
    return "\n".join(lines)
