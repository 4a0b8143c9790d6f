"""``blockyard pools``: what there is on a server."""

from dataclasses import asdict

import click

from blockyard.client.client import Client
from blockyard.client.reports import PoolDescription
from blockyard.core.errors import PoolNotFound
from blockyard.core.statistics import Statistics
from blockyard.server.commands.connection import connected
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.table import percent, print_rows


@click.command("pools")
@server_options
@json_option
def command(server: Reach, as_json: bool) -> None:
    """List a server's pools with their size, use and hit rate.

    \b
        blockyard pools
        blockyard pools --url http://blocks.internal:8484 --json
    """  # noqa: D301 - \b keeps click from filling the example
    with connected(server) as client:
        found = pools_with_figures(client)
    if as_json:
        print_json({"pools": [{**asdict(pool), "stats": asdict(stats)} for pool, stats in found]})
    elif not found:
        click.echo(f"no pools at {server.url}")
    else:
        print_rows(
            ["pool", "blocks", "block size", "held", "usage", "hit rate"],
            [
                (
                    pool.pool,
                    f"{pool.num_blocks:,}",
                    "+".join(str(group.block_size) for group in pool.groups),
                    f"{stats.num_held_blocks:,}",
                    percent(stats.usage),
                    percent(stats.hit_rate),
                )
                for pool, stats in found
            ],
        )


def pools_with_figures(client: Client) -> list[tuple[PoolDescription, Statistics]]:
    """All pools with their figures, without those that were deleted while we asked."""
    found = []
    for description in client.pools():
        try:
            found.append((description, client.pool(description.pool).stats()))
        except PoolNotFound:
            continue
    return found
