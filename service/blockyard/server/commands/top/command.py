"""The line of ``blockyard top``, and where what it shows goes."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from rich.console import Console, RenderableType
from rich.live import Live

from blockyard.server.commands.connection import connected
from blockyard.server.commands.pools import pools_with_figures
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.top.frames import frames
from blockyard.server.commands.top.pool_view import pool_view
from blockyard.server.commands.top.pool_watch import PoolWatch
from blockyard.server.commands.top.pools_table import PoolFigures, pools_table

FILE_WIDTH = 140


@click.command("top")
@click.argument("pool", required=False)
@server_options
@click.option(
    "--interval-s", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="From look to look."
)
@click.option(
    "--looks",
    type=click.IntRange(min=1),
    help="End after so many looks. Default: at Ctrl-C; where the output is no terminal, after one.",
)
def command(pool: str | None, server: Reach, interval_s: float, looks: int | None) -> None:
    """Watch a server's pools: how full they are, what they find, what happens in them, and who is missing.

    Of POOL, if it is named, all is shown: a map of its blocks, who holds most of them, its workers, and how
    long calls to the server took in the last ten seconds.

    In a wide terminal, a pool with adaptive eviction shows the weight that it has found for use against
    recency; 0 is least recently used.

    Rates are those since the look before. Pools that refuse or evict much are short of blocks. A server
    measures calls while somebody watches: looks have to be less than ten seconds apart. Where the output is
    no terminal, the last look is printed.

    \b
        blockyard top
        blockyard top llama-70b
        blockyard top llama-70b --looks 2 --interval-s 5 > now.txt
    """  # noqa: D301 - \b keeps click from filling the example
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, FILE_WIDTH))
        looks = looks or 1
    with _frames(console, server, pool, interval_s, looks) as shown:
        if console.is_terminal:
            _show(console, shown, is_endless=looks is None)
        else:
            *_, last = shown
            console.print(last)


@contextmanager
def _frames(
    console: Console, server: Reach, pool: str | None, interval_s: float, looks: int | None
) -> Iterator[Iterator[RenderableType]]:
    """Of all pools, or of the one that is named; at the width that the terminal has by then."""
    with connected(server) as client:
        if pool is None:

            def see() -> PoolFigures:
                return {each.pool: stats for each, stats in pools_with_figures(client)}

            yield frames(
                see,
                lambda now, before: pools_table(now, before, console.width),
                title=server.url,
                interval_s=interval_s,
                looks=looks,
            )
            return

        def height() -> int | None:
            return console.height if looks is None else None

        with PoolWatch(server, pool) as watch:
            yield frames(
                watch.look,
                lambda now, before: pool_view(now, before, console.width, height()),
                title=server.url,
                interval_s=interval_s,
                looks=looks,
            )


def _show(console: Console, shown: Iterator[RenderableType], *, is_endless: bool) -> None:
    with (
        suppress(KeyboardInterrupt),  # the way out
        Live(console=console, screen=is_endless, auto_refresh=False) as live,
    ):
        for frame in shown:
            live.update(frame, refresh=True)
