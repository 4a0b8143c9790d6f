"""``blockyard cluster show``: a cluster's nodes and pools, once or for as long as somebody watches."""

from contextlib import suppress
from dataclasses import asdict

import click
from rich.console import Console
from rich.live import Live

from blockyard.server.commands.cluster.tables import cluster_tables
from blockyard.server.commands.connection import connected
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.top.frames import frames

WATCH_EVERY_S = 0.5


@click.command("show")
@server_options
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C; where the output is no terminal, look once.")
@json_option
def show(server: Reach, watch: bool, as_json: bool) -> None:
    """Show a cluster's nodes and pools, as one node knows them: who is there, and who owns what.

    A pool's ownership rises with every owner. The lag is that of the node that is asked, behind the pools
    that it follows.

    \b
        blockyard cluster show
        blockyard cluster show --url http://127.0.0.1:8485 --watch
    """  # noqa: D301 - \b keeps click from filling the example
    if watch and as_json:
        raise click.UsageError("--watch and --json do not go together: ask again for another object")
    console = Console()
    with connected(server) as client:
        if as_json:
            print_json(asdict(client.cluster()))
        elif watch and console.is_terminal:
            with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
                for frame in frames(
                    client.cluster,
                    lambda now, _: cluster_tables(now.seen, console.height),
                    title=server.url,
                    interval_s=WATCH_EVERY_S,
                    looks=None,
                ):
                    live.update(frame, refresh=True)
        else:
            console.print(cluster_tables(client.cluster()))
