"""All of one pool: its row, its blocks, its holders, workers and latency, abreast where they fit."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table

from blockyard.server.commands.top.frames import Look
from blockyard.server.commands.top.members import MAX_ROWS, holders, latency, workers
from blockyard.server.commands.top.pool_map import PoolMap
from blockyard.server.commands.top.pool_watch import SeenPool
from blockyard.server.commands.top.pools_table import PoolFigures, pools_table

GAP = 2
"""Columns between two tables."""
LINES_ABOVE = 15
"""Of a screen, that are taken by what stands above the tables."""
LINES_AROUND = 4
"""Of a table, that are no rows."""
MIN_ROWS = 3


def pool_view(
    now: Look[SeenPool], before: Look[SeenPool] | None, width: int, height: int | None = None
) -> RenderableType:
    """``now`` with rates since ``before``.

    Args:
        now: What is shown.
        before: The look before.
        width: Of the terminal, in columns.
        height: Of the screen that it has to fit, in lines; None where it may be of any length.
    """
    row = pools_table(_row(now), None if before is None else _row(before), width)
    return Group(row, PoolMap(now.seen.blocks), "", _Members(now.seen, height))


class _Members:
    """Tables with as many rows as the screen has room for, where there is one."""

    def __init__(self, seen: SeenPool, height: int | None) -> None:
        self._seen = seen
        self._height = height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = _flow(console, options, self._tables(MAX_ROWS))
        if self._height is not None:
            num_rows = (self._height - LINES_ABOVE) // len(lines) - LINES_AROUND
            lines = _flow(console, options, self._tables(min(max(num_rows, MIN_ROWS), MAX_ROWS)))
        for tables in lines:
            beside = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
            beside.add_row(*tables)
            yield beside

    def _tables(self, num_rows: int) -> list[Table]:
        return [holders(self._seen, num_rows), workers(self._seen, num_rows), latency(self._seen)]


def _flow(console: Console, options: ConsoleOptions, tables: Sequence[Table]) -> list[list[Table]]:
    """``tables`` in lines, each as wide as the terminal at most unless a table alone is wider."""
    lines: list[list[Table]] = []
    taken = 0
    for table in tables:
        width = console.measure(table, options=options).maximum
        if lines and taken + GAP + width <= options.max_width:
            lines[-1].append(table)
            taken += GAP + width
        else:
            lines.append([table])
            taken = width
    return lines


def _row(look: Look[SeenPool]) -> Look[PoolFigures]:
    return Look(look.at_s, {look.seen.pool.pool: look.seen.pool.stats})
