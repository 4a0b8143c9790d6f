"""``blockyard top``: all pools in a terminal, as they are now and what happens in them."""

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from blockyard.client.client import Client
from blockyard.client.errors import ConnectionLost
from blockyard.core.statistics import Statistics
from blockyard.server.commands.connection import connected, url_option
from blockyard.server.commands.pools import pools_with_figures
from blockyard.server.commands.table import percent

HIGH_USAGE = 0.9
BAR_WIDTH = 14
WIDE = 110
"""Columns of a terminal that has room for all of it."""
FILE_WIDTH = 140
WIDE_COLUMNS = ("usage", "free", "cached", "hits", "seqs", "leases", "workers")
COLUMNS = ("usage", "free", "hits", "workers")
RATES = {
    "admit/s": "num_admitted_sequences",
    "refuse/s": "num_refused_allocations",
    "evict/s": "num_evicted_blocks",
}
"""Columns of what happens, and the counters behind them."""


@click.command("top")
@url_option
@click.option(
    "--interval-s", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="From look to look."
)
@click.option(
    "--looks",
    type=click.IntRange(min=1),
    help="End after so many looks. Default: at Ctrl-C; where the output is no terminal, after one.",
)
def command(url: str, interval_s: float, looks: int | None) -> None:
    """Watch a server's pools: how full they are, what they find, what happens in them, and who is missing.

    Rates are those since the look before. Pools that refuse or evict much are short of blocks. Where the
    output is no terminal, the last look is printed.

    \b
        blockyard top
        blockyard top --looks 2 --interval-s 10 > now.txt
    """  # noqa: D301 - \b keeps click from filling the example
    console = Console()
    with connected(url) as client:
        if not console.is_terminal:
            console = Console(width=max(console.width, FILE_WIDTH))
            *_, last = top_frames(client, url, interval_s, looks or 1, console.width)
            console.print(last)
            return
        with (
            suppress(KeyboardInterrupt),  # the way out
            Live(console=console, screen=looks is None, auto_refresh=False) as live,
        ):
            for frame in top_frames(client, url, interval_s, looks, console.width):
                live.update(frame, refresh=True)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen, and when on a steady clock."""

    at_s: float
    figures: dict[str, Statistics]


def top_frames(
    client: Client, url: str, interval_s: float, looks: int | None, width: int
) -> Iterator[RenderableType]:
    """One a look. A server that does not answer at the first one ends it; later it may be back soon."""
    before, now = None, _look(client)
    title = f"{url}: {datetime.now().astimezone():%H:%M:%S}"
    for number in itertools.count(1):
        yield Group(Text(title), _table(now, before, width))
        if number == looks:
            return
        time.sleep(interval_s)
        try:
            before, now = now, _look(client)
            title = f"{url}: {datetime.now().astimezone():%H:%M:%S}"
        except ConnectionLost:
            title = f"{title.partition(', no answer since')[0]}, no answer since"


def _look(client: Client) -> _Look:
    figures = {pool.pool: stats for pool, stats in pools_with_figures(client)}
    return _Look(time.monotonic(), figures)


def _table(now: _Look, before: _Look | None, width: int) -> RenderableType:
    if not now.figures:
        return Text("no pools yet: PUT /v1/pools/{name} makes one")
    is_wide = width >= WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if is_wide else 0))
    longest = max(map(len, now.figures))
    table.add_column("pool", no_wrap=True, min_width=min(longest, width // 4), overflow="ellipsis")
    if is_wide:
        table.add_column("")
    for column in (*(WIDE_COLUMNS if is_wide else COLUMNS), *RATES):
        table.add_column(column, justify="right", no_wrap=True)
    for name, stats in now.figures.items():
        bar = [_bar(stats)] if is_wide else []
        table.add_row(Text(name), *bar, *_cells(stats, is_wide=is_wide), *_rates(name, now, before))
    return table


def _bar(stats: Statistics) -> ProgressBar:
    style = "red" if stats.usage >= HIGH_USAGE else "green"
    return ProgressBar(
        total=1, completed=stats.usage, width=BAR_WIDTH, complete_style=style, finished_style=style
    )


def _cells(stats: Statistics, *, is_wide: bool) -> Iterator[Text]:
    """Of `WIDE_COLUMNS`, or of `COLUMNS`."""
    yield Text(percent(stats.usage))
    yield Text(f"{stats.num_free_blocks:,}")
    if is_wide:
        yield Text(f"{stats.num_cached_blocks:,}")
    yield Text("-" if stats.hit_rate is None else percent(stats.hit_rate))
    if is_wide:
        yield Text(f"{stats.num_sequences:,}")
        yield Text(f"{stats.num_leases:,}")
    if stats.num_lost_workers:
        yield Text(f"{stats.num_workers:,}, {stats.num_lost_workers:,} lost", style="bold red")
    else:
        yield Text(f"{stats.num_workers:,}")


def _rates(name: str, now: _Look, before: _Look | None) -> Iterator[Text]:
    """Of the counters of `RATES`, a second; none of a pool that is new."""
    earlier = before.figures.get(name) if before else None
    for counter in RATES.values():
        if before is None or earlier is None:
            yield Text("-")
        else:
            rise = now.figures[name].counters[counter] - earlier.counters[counter]
            yield Text(f"{max(rise, 0) / max(now.at_s - before.at_s, 1e-9):,.1f}")
