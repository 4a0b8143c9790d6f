"""``blockyard stats``: a pool's figures of this moment."""

from collections.abc import Iterator
from dataclasses import asdict

import click

from blockyard.core.statistics import Statistics
from blockyard.server.commands.connection import connected
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.table import percent, print_facts


@click.command("stats")
@click.argument("pool")
@server_options
@json_option
def command(pool: str, server: Reach, as_json: bool) -> None:
    """Show the figures of POOL: its blocks, its hit rate, and what has happened in its life.

    \b
        blockyard stats llama-70b
        blockyard stats llama-70b --json
    """  # noqa: D301 - \b keeps click from filling the example
    with connected(server) as client:
        stats = client.pool(pool).stats()
    if as_json:
        print_json({"pool": pool, **asdict(stats)})
    else:
        print_facts(f"pool {pool}", _facts(stats))


def _facts(stats: Statistics) -> Iterator[tuple[str, str]]:
    yield "epoch", str(stats.epoch)
    yield "blocks", f"{stats.num_blocks:,}"
    yield "free", f"{stats.num_free_blocks:,}"
    yield "held", f"{stats.num_held_blocks:,}"
    yield "cached", f"{stats.num_cached_blocks:,}"
    yield "usage", percent(stats.usage)
    yield "hit rate", percent(stats.hit_rate)
    weight = "" if stats.eviction_weight is None else f", weight {stats.eviction_weight:g}"
    yield "eviction", f"{stats.eviction}{weight}"
    yield "sequences", f"{stats.num_sequences:,}"
    yield "leases", f"{stats.num_leases:,}"
    if stats.num_pins:
        soft, hard = stats.num_soft_pinned_blocks, stats.num_hard_pinned_blocks
        yield "pins", f"{stats.num_pins:,}, {soft:,} blocks evicted last, {hard:,} held"
    lost = f", {stats.num_lost_workers:,} lost" if stats.num_lost_workers else ""
    yield "workers", f"{stats.num_workers:,}{lost}"
    for name, value in stats.counters.items():
        yield name.removeprefix("num_").replace("_", " "), f"{value:,}"
