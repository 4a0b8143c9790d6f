"""``blockyard top``: all pools in a terminal, as they are now and what happens in them."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import click
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from blockyard.client.client import Client
from blockyard.core.statistics import Statistics
from blockyard.server.commands.connection import connected, url_option
from blockyard.server.commands.pools import pools_with_figures
from blockyard.server.commands.table import percent

HIGH_USAGE = 0.9
BAR_WIDTH = 14
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
@click.option("--looks", type=click.IntRange(min=1), help="End after so many looks; default: at Ctrl-C.")
def command(url: str, interval_s: float, looks: int | None) -> None:
    """Watch a server's pools: how full they are, what they find, what happens in them, and who is missing.

    Rates are those since the look before. Pools that refuse or evict much are short of blocks.

    \b
        blockyard top
        blockyard top --looks 2 --interval-s 10 > now.txt
    """  # noqa: D301 - \b keeps click from filling the example
    console = Console()
    with connected(url) as client:
        frames = _frames(client, url, interval_s, looks)
        if not console.is_terminal:
            *_, last = frames
            console.print(last)
            return
        with (
            suppress(KeyboardInterrupt),  # the way out
            Live(console=console, screen=looks is None, auto_refresh=False) as live,
        ):
            for frame in frames:
                live.update(frame, refresh=True)


@dataclass(slots=True)
class _Before:
    """Counters at the look before, by pool, and when that was on a steady clock."""

    at_s: float = 0.0
    counters: dict[str, dict[str, int]] = field(default_factory=dict)


def _frames(client: Client, url: str, interval_s: float, looks: int | None) -> Iterator[Group]:
    before = _Before()
    number = 0
    while looks is None or number < looks:
        if number:
            time.sleep(interval_s)
        figures = {pool.pool: stats for pool, stats in pools_with_figures(client)}
        now_s = time.monotonic()
        yield _frame(url, figures, before, now_s)
        before = _Before(now_s, {name: stats.counters for name, stats in figures.items()})
        number += 1


def _frame(url: str, figures: dict[str, Statistics], before: _Before, now_s: float) -> Group:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("pool", overflow="fold")
    table.add_column("usage")
    for column in ("", "free", "cached", "hits", "seqs", "leases", "workers", *RATES):
        table.add_column(column, justify="right", no_wrap=True)
    for name, stats in figures.items():
        table.add_row(Text(name), _bar(stats), *_cells(name, stats, before, now_s))
    title = f"{url}: {len(figures)} pools" if len(figures) != 1 else f"{url}: 1 pool"
    return Group(Text(title), table if figures else Text("no pools yet: PUT /v1/pools/{name} makes one"))


def _bar(stats: Statistics) -> ProgressBar:
    style = "red" if stats.usage >= HIGH_USAGE else "green"
    return ProgressBar(
        total=1, completed=stats.usage, width=BAR_WIDTH, complete_style=style, finished_style=style
    )


def _cells(name: str, stats: Statistics, before: _Before, now_s: float) -> Iterator[Text]:
    yield Text(percent(stats.usage))
    yield Text(f"{stats.num_free_blocks:,}")
    yield Text(f"{stats.num_cached_blocks:,}")
    yield Text("-" if stats.hit_rate is None else percent(stats.hit_rate))
    yield Text(f"{stats.num_sequences:,}")
    yield Text(f"{stats.num_leases:,}")
    if stats.num_lost_workers:
        yield Text(f"{stats.num_workers:,}, {stats.num_lost_workers:,} lost", style="bold red")
    else:
        yield Text(f"{stats.num_workers:,}")
    earlier = before.counters.get(name)
    for counter in RATES.values():
        if earlier is None:
            yield Text("-")
        else:
            rate = (stats.counters[counter] - earlier[counter]) / max(now_s - before.at_s, 1e-9)
            yield Text(f"{rate:,.1f}")
