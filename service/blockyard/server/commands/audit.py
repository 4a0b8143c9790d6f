"""``blockyard audit``: does a pool add up?"""

from dataclasses import asdict

import click

from blockyard.core.audit import Audit
from blockyard.server.commands.connection import connected, json_option, print_json, url_option
from blockyard.server.commands.table import print_facts, print_rows


@click.command("audit")
@click.argument("pool")
@url_option
@json_option
def command(pool: str, url: str, as_json: bool) -> None:
    """Recount POOL from its block tables: free + held + null = total. Exit status 1 if it does not add up.

    The server does nothing else meanwhile; a pool of a million blocks takes about a second.

    \b
        blockyard audit llama-70b
    """  # noqa: D301 - \b keeps click from filling the example
    with connected(url) as client:
        audit = client.pool(pool).audit()
    if as_json:
        print_json({"pool": pool, **asdict(audit)})
    else:
        _print(pool, audit)
    if not audit.ok:
        raise click.ClickException(f"pool {pool} does not add up")


def _print(pool: str, audit: Audit) -> None:
    print_facts(
        f"pool {pool}: {'adds up' if audit.ok else 'DOES NOT ADD UP'}",
        [
            ("free", f"{audit.num_free_blocks:,}"),
            ("held", f"{audit.num_held_blocks:,}"),
            ("null", f"{audit.num_null_blocks:,}"),
            ("total", f"{audit.num_blocks:,}"),
        ],
    )
    if audit.holders:
        print_rows(
            ["holder", "lease", "sequences", "blocks"],
            [
                (holder.holder, holder.lease_id, f"{holder.num_sequences:,}", f"{holder.num_blocks:,}")
                for holder in audit.holders
            ],
        )
    for problem in audit.problems:
        click.echo(f"problem: {problem}")
