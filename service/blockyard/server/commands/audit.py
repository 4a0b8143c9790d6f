"""``blockyard audit``: does a pool add up?"""

from dataclasses import asdict
from pathlib import Path

import click

from blockyard.core.audit import Audit
from blockyard.server.commands.connection import connected
from blockyard.server.commands.data_dir import data_dir_type, reading
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.table import print_facts, print_rows
from blockyard.server.journal.recovery import RecoveryProgress, recover


@click.command("audit")
@click.argument("pool", required=False)
@server_options
@click.option("--data-dir", type=data_dir_type, help="Instead of a server: the files of one that is stopped.")
@json_option
def command(pool: str | None, server: Reach, data_dir: Path | None, as_json: bool) -> None:
    """Recount POOL from its block tables: free + held + null = total. Exit status 1 if it does not add up.

    A server does nothing else meanwhile; a pool of a million blocks takes about a second. Of a stopped
    server's files every checksum is checked, and all pools are recounted if none is named.

    \b
        blockyard audit llama-70b
        blockyard audit --data-dir blockyard-data
    """  # noqa: D301 - \b keeps click from filling the example
    if data_dir is not None:
        audits = _stored_audits(data_dir, pool)
    elif pool is None:
        raise click.UsageError("name a POOL, or the --data-dir of a stopped server")
    else:
        with connected(server) as client:
            audits = [(pool, client.pool(pool).audit())]
    for name, audit in audits:
        if as_json:
            print_json({"pool": name, **asdict(audit)})
        else:
            _print(name, audit)
    wrong = [name for name, audit in audits if not audit.ok]
    if wrong:
        raise click.ClickException(f"pool {', '.join(wrong)} does not add up")


def _stored_audits(data_dir: Path, pool: str | None) -> list[tuple[str, Audit]]:
    with reading(data_dir, owned=True) as journal:
        audits = [(each.name, each.pool.audit()) for each in recover(journal, RecoveryProgress())]
    if pool is None:
        return audits
    named = [(name, audit) for name, audit in audits if name == pool]
    if not named:
        raise click.ClickException(f"{data_dir} has no pool {pool!r}")
    return named


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
        has_tenants = any(holder.tenant for holder in audit.holders)
        print_rows(
            ["holder", *(["tenant"] if has_tenants else []), "lease", "sequences", "blocks"],
            [
                (
                    holder.holder,
                    *([holder.tenant or "-"] if has_tenants else []),
                    holder.lease_id,
                    f"{holder.num_sequences:,}",
                    f"{holder.num_blocks:,}",
                )
                for holder in audit.holders
            ],
        )
    if audit.pins:
        print_rows(
            ["hard pin", "tenant", "blocks"],
            [(pin.pin_id, pin.tenant or "-", f"{pin.num_blocks:,}") for pin in audit.pins],
        )
    for problem in audit.problems:
        click.echo(f"problem: {problem}")
