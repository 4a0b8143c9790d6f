"""The cells as tables: for a terminal, and in Markdown."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.laboratory.cell import Cell
from blockyard.core.config import Eviction

OTHERS = tuple(sorted({*Eviction} - {Eviction.LRU}))
COLUMNS = (
    "workload",
    "blocks",
    *(f"{policy}, tokens" for policy in Eviction),
    *Eviction,
    "optimum",
    *(heading for policy in OTHERS for heading in (f"{policy} / lru", "of the gap")),
)


def cells_of(cell: Cell) -> tuple[str, ...]:
    """A row of `COLUMNS`: cached tokens, block hit ratios, what others gain over lru."""
    return (
        cell.workload,
        f"{cell.capacity:,}",
        *(f"{cell.num_cached_tokens[policy]:,}" for policy in Eviction),
        *(f"{cell.hit_ratio(policy):.4f}" for policy in Eviction),
        f"{cell.optimal_hit_ratio:.4f}",
        *(
            text
            for policy in OTHERS
            for text in (
                _or_dash(cell.against_lru(policy), "{:.3f}"),
                _or_dash(cell.gap_closed(policy), "{:.0%}"),
            )
        ),
    )


def summaries(cells: Sequence[Cell]) -> Iterator[str]:
    """A line for each policy beside lru: the worst cell, and the share of the gap on the whole."""
    for policy in OTHERS:
        ratios = [(ratio, cell) for cell in cells if (ratio := cell.against_lru(policy)) is not None]
        shares = [share for cell in cells if (share := cell.gap_closed(policy)) is not None]
        if ratios:
            ratio, worst = min(ratios, key=lambda pair: pair[0])
            yield (
                f"{policy}: at least {ratio:.3f} x lru ({worst.workload} at {worst.capacity:,} blocks); "
                f"{fmean(shares or [0.0]):.0%} of the gap to the optimum closed, in the mean of "
                f"{len(shares)} cells where there is one"
            )


def workload_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """A line for each workload: its size, and what was skipped."""
    for cell in {cell.workload: cell for cell in cells}.values():
        skipped = [each for each in cells if each.workload == cell.workload and each.num_skipped]
        note = ", ".join(f"{each.num_skipped:,} at {each.capacity:,} blocks" for each in skipped)
        yield (
            f"{cell.workload}: {cell.num_requests + cell.num_skipped:,} requests, blocks of {cell.block_size}"
            + (f"; too long for the pool and skipped: {note}" if note else "")
        )


def print_table(cells: Sequence[Cell], console: Console) -> None:
    """Print it."""
    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "workload" else "right")
    before = ""
    for cell in cells:
        if before not in ("", cell.workload):
            table.add_section()
        before = cell.workload
        table.add_row(*cells_of(cell))
    console.print(table)
    for line in (*workload_lines(cells), *summaries(cells)):
        console.print(line, highlight=False)


def markdown(cells: Sequence[Cell], command: str) -> str:
    """A section with the table, and the command that makes it."""
    lines = [
        "## Eviction",
        "",
        f"    {command}",
        "",
        "Requests in their order; each is allocated, which publishes its blocks, and freed. Cached tokens,",
        "hit ratios of full blocks, and the share of what foresight would gain over `lru`.",
        "",
        *(f"- {line}" for line in summaries(cells)),
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "|".join(" --- " if name == "workload" else " ---: " for name in COLUMNS) + "|",
        *("| " + " | ".join(cells_of(cell)) + " |" for cell in cells),
        "",
        *(f"- {line}" for line in workload_lines(cells)),
        "",
    ]
    return "\n".join(lines)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
