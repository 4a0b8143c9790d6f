"""A pool of the replay's own, which is gone when the replay ends."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from blockyard.client.client import Client, Pool
from blockyard.client.errors import ConnectionLost
from blockyard.core.errors import PoolExists
from blockyard.server.commands.replay.options import ReplayOptions


@contextmanager
def own_pool(client: Client, options: ReplayOptions) -> Iterator[Pool]:
    """A new pool, deleted at the end with all that it holds.

    It is ours beyond doubt: its hash seed is one that nobody else can know, so creating it finds no pool of
    anyone else's, be it made a moment before, but may be repeated when a reply was lost.

    Args:
        client: Of its server.
        options: Of the replay. Their pool is not one that stands.

    Raises:
        click.ClickException: A pool of this name stands: it is somebody's, and not ours to delete.
    """
    name = options.pool or f"replay-{secrets.token_hex(8)}"
    seed = secrets.token_hex(16)  # changes nothing for us: we send hashes, and no tokens to be hashed
    try:
        pool = client.create_pool(
            name,
            num_blocks=options.num_blocks,
            block_size=options.block_size,
            publish="on_allocate",
            eviction=options.eviction,
            hash_seed=seed,
        )
    except PoolExists as error:
        raise click.ClickException(
            f"pool {name} exists already, and a replay deletes its pool at the end: choose another name"
        ) from error
    try:
        yield pool
    finally:
        with suppress(ConnectionLost):  # a server that is gone has taken the pool along
            pool.delete(force=True)
