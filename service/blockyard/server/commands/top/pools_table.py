"""A row a pool: how full it is, what it finds, who is missing, and what happened since the look before."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TypeAlias

from rich import box
from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from blockyard.core.statistics import Statistics
from blockyard.server.commands.table import percent
from blockyard.server.commands.top.frames import Look

HIGH_USAGE = 0.9
BAR_WIDTH = 14
WIDE = 110
"""Columns of a terminal that has room for all of it."""
WIDE_COLUMNS = ("usage", "free", "cached", "hits", "weight", "seqs", "leases", "workers")
NARROW = 60
"""Columns of a terminal that has room for rates."""
COLUMNS = ("usage", "free", "hits", "workers")
NARROW_COLUMNS = ("usage", "free", "workers")
RATES = {
    "admit/s": "num_admitted_sequences",
    "refuse/s": "num_refused_allocations",
    "evict/s": "num_evicted_blocks",
}
"""Columns of what happens, and the counters behind them."""

_COUNTS: Mapping[str, Callable[[Statistics], int]] = {
    "free": attrgetter("num_free_blocks"),
    "cached": attrgetter("num_cached_blocks"),
    "seqs": attrgetter("num_sequences"),
    "leases": attrgetter("num_leases"),
    "workers": attrgetter("num_workers"),
}

PoolFigures: TypeAlias = Mapping[str, Statistics]
"""Figures by the pool's name."""


def pools_table(now: Look[PoolFigures], before: Look[PoolFigures] | None, width: int) -> RenderableType:
    """A table of ``now``'s pools with their rates since ``before``, for a terminal of ``width`` columns."""
    if not now.seen:
        return Text("no pools yet: PUT /v1/pools/{name} makes one")
    is_wide, is_narrow = width >= WIDE, width < NARROW
    columns = WIDE_COLUMNS if is_wide else NARROW_COLUMNS if is_narrow else COLUMNS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if is_wide else 0))
    longest = max(map(len, now.seen))
    table.add_column("pool", no_wrap=True, min_width=min(longest, width // 4), overflow="ellipsis")
    if is_wide:
        table.add_column("")
    for column in (*columns, *(() if is_narrow else RATES)):
        table.add_column(column, justify="right", no_wrap=True)
    for name, stats in now.seen.items():
        bar = [_bar(stats)] if is_wide else []
        rates = () if is_narrow else _rates(name, now, before)
        table.add_row(Text(name), *bar, *(_cell(column, stats) for column in columns), *rates)
    return table


def _bar(stats: Statistics) -> ProgressBar:
    style = "red" if stats.usage >= HIGH_USAGE else "green"
    return ProgressBar(
        total=1, completed=stats.usage, width=BAR_WIDTH, complete_style=style, finished_style=style
    )


def _cell(column: str, stats: Statistics) -> Text:
    """Of one of `WIDE_COLUMNS`."""
    match column:
        case "usage":
            return Text(percent(stats.usage))
        case "hits":
            return Text("-" if stats.hit_rate is None else percent(stats.hit_rate))
        case "weight":
            return Text(stats.eviction if stats.eviction_weight is None else f"{stats.eviction_weight:g}")
        case "workers" if stats.num_lost_workers:
            return Text(f"{stats.num_workers:,}, {stats.num_lost_workers:,} lost", style="bold red")
        case _:
            return Text(f"{_COUNTS[column](stats):,}")


def _rates(name: str, now: Look[PoolFigures], before: Look[PoolFigures] | None) -> Iterator[Text]:
    """Of the counters of `RATES`, a second; none of a pool that is new."""
    earlier = before.seen.get(name) if before else None
    for counter in RATES.values():
        if before is None or earlier is None:
            yield Text("-")
        else:
            rise = now.seen[name].counters[counter] - earlier.counters[counter]
            yield Text(f"{max(rise, 0) / max(now.at_s - before.at_s, 1e-9):,.1f}")
