"""What a replay tells at its end: a table and a plot for people, one object for programs."""

import sys
from collections.abc import Sequence

import click
from plotext import figure

from blockyard.server.commands.replay.options import ReplayOptions
from blockyard.server.commands.replay.tally import Outcome, Point
from blockyard.server.commands.table import percent, print_facts

PLOT_WIDTH = 78
PLOT_HEIGHT = 12


def print_report(title: str, outcome: Outcome, options: ReplayOptions) -> None:
    """Table and plot, 80 columns wide, on standard output.

    Args:
        title: What was replayed, and on what.
        outcome: What came of it.
        options: How it was put to the pool.
    """
    call = "step" if options.steps else "allocate"
    print_facts(
        title,
        [
            ("eviction", options.eviction.value),
            ("requests", f"{outcome.num_requests:,}"),
            ("input tokens", f"{outcome.input_tokens:,}"),
            ("cached tokens", f"{outcome.cached_tokens:,}"),
            ("hit rate", percent(outcome.hit_rate)),
            ("refused for want of blocks", f"{outcome.num_refused:,}"),
            ("seconds", f"{outcome.seconds:.2f}"),
            ("requests a second", f"{outcome.requests_per_s:,.0f}"),
            (f"{call}, median", f"{outcome.latency_p50_ms:.2f} ms"),
            (f"{call}, 99th percentile", f"{outcome.latency_p99_ms:.2f} ms"),
        ],
    )
    if len(outcome.hit_rate_series) > 1:
        click.echo(plot(outcome.hit_rate_series))


def plot(series: Sequence[Point]) -> str:
    """The hit rate over the requests, in text; in colour on a terminal."""
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(PLOT_WIDTH, PLOT_HEIGHT)
    figure.title("hit rate over the requests, %")
    line = figure.signal(
        [point.num_requests for point in series],
        [100 * point.hit_rate for point in series],
        marker="braille" if "utf" in (sys.stdout.encoding or "").lower() else "*",
    )
    figure.draw(line.lines())
    last = series[-1].num_requests
    ticks = [max(1, last * quarter // 4) for quarter in range(5)]
    figure.ruler("x").ticks(ticks, [f"{tick:,}" for tick in ticks])
    figure.ruler("x").lim(1, last)
    figure.ruler("y").lim(0, 100)
    rows: str = figure.build().string(colorless=True)
    return "\n".join(row.rstrip() for row in rows.splitlines())
