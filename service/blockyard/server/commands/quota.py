"""``blockyard quota``: what a pool's tenants are promised and have, and how that is changed."""

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from blockyard.client.client import Pool
from blockyard.client.reports import TenantReport
from blockyard.core.errors import TenantNotFound
from blockyard.core.quota import NO_QUOTA, Quota
from blockyard.server.commands.connection import connected
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.table import print_facts

NONE = "none"
"""How it is said, and shown, that there is no bound."""

NO_NAME = "-"
"""Of those who have no tenant: no tenant is called so."""

WIDE = 96
"""Columns of a terminal that has room for bars."""

BAR_WIDTH = 14
COLUMNS = ("guaranteed", "max", "weight", "held", "leases", "sequences", "waiting")


def _bound(context: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """A count, or `NONE`; None where nothing was given."""
    if value is None or value == NONE:
        return value
    bound: int = click.IntRange(min=0)(value, param, context)
    return bound


@click.command("quota")
@click.argument("pool")
@click.argument("tenant", required=False)
@click.option(
    "--guaranteed", type=click.IntRange(min=0), help="Blocks that it can always hold, whatever others do."
)
@click.option(
    "--max",
    "most",
    metavar=f"INTEGER|{NONE}",
    callback=_bound,
    help=f"Blocks that it never holds more than; {NONE}: no bound.",
)
@click.option(
    "--weight", type=click.IntRange(min=1), help="Its share of what comes free while several tenants wait."
)
@click.option("--remove", is_flag=True, help="Take its quota back.")
@server_options
@json_option
def command(
    *,
    pool: str,
    tenant: str | None,
    guaranteed: int | None,
    most: int | str | None,
    weight: int | None,
    remove: bool,
    server: Reach,
    as_json: bool,
) -> None:
    """Show what the tenants of POOL are promised and hold; with TENANT and options, set what it is promised.

    What no option names stays as it is. A tenant that holds more than its new maximum keeps that, and gets
    no more. The guarantees of all tenants together are never more than the pool has.

    \b
        blockyard quota llama-70b
        blockyard quota llama-70b acme --guaranteed 2000 --max 6000 --weight 2
        blockyard quota llama-70b acme --max none
        blockyard quota llama-70b acme --remove
    """  # noqa: D301 - \b keeps click from filling the example
    is_change = not guaranteed is most is weight is None
    if tenant is None and (is_change or remove):
        raise click.UsageError("name the TENANT whose quota it is")
    if is_change and remove:
        raise click.UsageError("--remove takes all of a quota back: give it alone")
    with connected(server) as client:
        reached = client.pool(pool)
        if tenant is None:
            _show_all(pool, reached.tenants(), as_json=as_json)
            return
        if remove:
            report = reached.remove_quota(tenant)
        elif is_change:
            quota = _changed(_quota_of(reached, tenant), guaranteed, most, weight)
            report = reached.set_quota(tenant, **asdict(quota))
        else:
            report = reached.tenant(tenant)
    if as_json:
        print_json({"pool": pool, **asdict(report)})
    else:
        print_facts(f"tenant {report.tenant} in pool {pool}", list(zip(COLUMNS, _cells(report), strict=True)))


def _quota_of(pool: Pool, tenant: str) -> Quota:
    try:
        report = pool.tenant(tenant)
    except TenantNotFound:
        return NO_QUOTA
    return Quota(
        guaranteed_blocks=report.guaranteed_blocks, max_blocks=report.max_blocks, weight=report.weight
    )


def _changed(quota: Quota, guaranteed: int | None, most: int | str | None, weight: int | None) -> Quota:
    """``quota`` with what is given."""
    return Quota(
        guaranteed_blocks=quota.guaranteed_blocks if guaranteed is None else guaranteed,
        max_blocks=quota.max_blocks if most is None else most if isinstance(most, int) else None,
        weight=quota.weight if weight is None else weight,
    )


def _show_all(pool: str, tenants: Sequence[TenantReport], *, as_json: bool) -> None:
    if as_json:
        print_json({"pool": pool, "tenants": [asdict(tenant) for tenant in tenants]})
        return
    console = Console()
    has_bars = console.width >= WIDE and any(tenant.max_blocks for tenant in tenants)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("tenant", overflow="fold")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    if has_bars:
        table.add_column("held of max")
    for tenant in tenants:
        bar = [_bar(tenant)] if has_bars else []
        table.add_row(Text(tenant.tenant or NO_NAME), *map(Text, _cells(tenant)), *bar)
    console.print(table)


def _cells(tenant: TenantReport) -> list[str]:
    """Those of `COLUMNS`."""
    return [
        f"{tenant.guaranteed_blocks:,}",
        NONE if tenant.max_blocks is None else f"{tenant.max_blocks:,}",
        f"{tenant.weight:,}",
        f"{tenant.num_held_blocks:,}",
        f"{tenant.num_leases:,}",
        f"{tenant.num_sequences:,}",
        f"{tenant.num_waiting:,}",
    ]


def _bar(tenant: TenantReport) -> ProgressBar | Text:
    if not tenant.max_blocks:
        return Text("")
    style = "red" if tenant.num_held_blocks >= tenant.max_blocks else "green"
    held = min(tenant.num_held_blocks, tenant.max_blocks)
    return ProgressBar(
        total=tenant.max_blocks, completed=held, width=BAR_WIDTH, complete_style=style, finished_style=style
    )
