"""``blockyard pins``: which prefixes of a pool are kept, and for how long."""

from dataclasses import asdict
from datetime import UTC, datetime

import click

from blockyard.server.commands.connection import connected
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.reach import Reach, server_options
from blockyard.server.commands.table import print_rows


@click.command("pins")
@click.argument("pool")
@server_options
@json_option
def command(pool: str, server: Reach, as_json: bool) -> None:
    """List the pins of POOL: what is kept of it, how much of that is cached, and until when.

    \b
        blockyard pins llama-70b
        blockyard pins llama-70b --json
    """  # noqa: D301 - \b keeps click from filling the example
    with connected(server) as client:
        pins = client.pool(pool).pins()
    if as_json:
        print_json({"pool": pool, "pins": [asdict(pin) for pin in pins]})
    elif not pins:
        click.echo(f"nothing is pinned in pool {pool}")
    else:
        has_tenants = any(pin.tenant for pin in pins)
        print_rows(
            ["pin", *(["tenant"] if has_tenants else []), "kind", "tokens", "cached", "held", "expires"],
            [
                (
                    pin.pin_id,
                    *([pin.tenant or "-"] if has_tenants else []),
                    "hard" if pin.hard else "soft",
                    f"{pin.num_tokens:,}",
                    f"{pin.num_cached_tokens:,}",
                    f"{pin.num_held_blocks:,}",
                    f"{datetime.fromtimestamp(pin.expires_at_ms / 1_000, UTC):%m-%d %H:%MZ}",
                )
                for pin in pins
            ],
        )
