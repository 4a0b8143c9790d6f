"""Paragraphs and tables at any width: lines end at words, names break at dots, and no line ends in blanks."""

import re
from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

MAX_ROWS = 12
"""Of a long list, unless all are asked for."""

MIN_COLUMNS = 24
"""Narrower terminals are written to as if they had so many."""

Cell = str | Text
Row = Sequence[Cell] | str
"""A name and figures; a string alone is a line across, over the rows that it is about."""

_AFTER_A_SIGN = re.compile(r"(?<=[.,/])")


def fill(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` characters; longer words break behind a dot or comma."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) <= width:
            line += f" {word}"
            continue
        if line:
            lines.append(line)
        *full, line = _broken(word, width)
        lines += full
    return [*lines, line]


def print_paragraph(console: Console, text: str, *, style: str = "", lead: str = "", indent: int = 0) -> None:
    """``text`` behind ``lead`` on the first line, and ``indent`` blanks on the others."""
    lines = fill(text, max(MIN_COLUMNS, console.width) - max(len(lead), indent))
    for number, line in enumerate(lines):
        _print(console, Text((" " * indent if number else lead) + line, style=style))


def print_heading(console: Console, words: str) -> None:
    """The title of what follows."""
    console.print()
    print_paragraph(console, words, style="bold")


def print_rest(console: Console, num_rows: int, limit: int | None, what: str) -> None:
    """How many rows were left out, if any were."""
    if limit is not None and num_rows > limit:
        print_paragraph(
            console, f"... and {num_rows - limit:,} more {what}: --tensors prints all, --json too"
        )


def print_table(console: Console, headings: Sequence[Cell], rows: Sequence[Row]) -> None:
    """Figures in columns under ``headings``, the first of which is that of the names.

    Names stand to the left; where there is no room for that, above their figures; and where the columns alone
    are too wide, each figure has a line.
    """
    cells = [row for row in rows if not isinstance(row, str)]
    widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
    without_names = [0, *widths[1:]]
    room = max(MIN_COLUMNS, console.width)
    if sum(widths) + 2 * len(widths[1:]) <= room:
        gap = 3 if sum(widths) + 3 * len(widths[1:]) <= room else 2
        _print_columns(console, headings, rows, widths, gap)
    elif sum(without_names) + 2 * len(widths[1:]) <= room:
        _print_columns(console, ["", *headings[1:]], rows, without_names, 2)
    else:
        _print_list(console, headings, rows)


def _print_columns(
    console: Console, headings: Sequence[Cell], rows: Sequence[Row], widths: Sequence[int], gap: int
) -> None:
    """A first column without a width stands above the others."""
    heights = [_plain(heading).count("\n") for heading in headings]
    lowered = [
        Text.assemble("\n" * (max(heights) - height), cell)
        for cell, height in zip(headings, heights, strict=True)
    ]
    _print_row(console, lowered, widths, gap)
    rule = "-" if console.options.ascii_only else "─"
    _print(console, Text(rule * (sum(widths) + gap * (len(widths) - 1))))
    for row in rows:
        if isinstance(row, str):
            print_paragraph(console, row, style="bold", indent=4)
        elif widths[0]:
            _print_row(console, row, widths, gap)
        else:
            print_paragraph(console, _plain(row[0]), indent=4)
            _print_row(console, ["", *row[1:]], widths, gap)


def _print_list(console: Console, headings: Sequence[Cell], rows: Sequence[Row]) -> None:
    labels = [_plain(heading).replace("\n", " ") for heading in headings[1:]]
    for row in rows:
        if isinstance(row, str):
            print_paragraph(console, row, style="bold", indent=4)
            continue
        print_paragraph(console, _plain(row[0]), indent=4)
        for label, cell in zip(labels, row[1:], strict=True):
            if _width(cell):
                figures = ", ".join(_plain(cell).replace(",\n", "\n").split("\n"))
                print_paragraph(console, f"{label}: {figures}", lead="    ", indent=6)


def _print_row(console: Console, row: Sequence[Cell], widths: Sequence[int], gap: int) -> None:
    columns = [(cell if isinstance(cell, Text) else Text(cell)).split("\n", allow_blank=True) for cell in row]
    for parts in zip_longest(*columns, fillvalue=Text()):
        name, *figures = parts
        line = Text.assemble(name, " " * (widths[0] - len(name)))
        for figure, width in zip(figures, widths[1:], strict=True):
            line.append(" " * (gap + width - len(figure)))
            line.append_text(figure)
        _print(console, line)


def _print(console: Console, line: Text) -> None:
    line.rstrip()
    console.print(line, no_wrap=True, soft_wrap=True)


def _plain(cell: Cell) -> str:
    return cell.plain if isinstance(cell, Text) else cell


def _width(cell: Cell) -> int:
    return max(map(len, _plain(cell).split("\n")))


def _broken(word: str, width: int) -> list[str]:
    """``word`` in parts of at most ``width`` characters."""
    parts = [""]
    for piece in _AFTER_A_SIGN.split(word) if len(word) > width else [word]:
        if parts[-1] and len(parts[-1]) + len(piece) > width:
            parts.append("")
        parts[-1] += piece
        while len(parts[-1]) > width:  # no sign to break behind
            parts[-1:] = [parts[-1][:width], parts[-1][width:]]
    return parts
