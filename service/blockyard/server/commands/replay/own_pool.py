"""A pool of the replay's own, which is gone when the replay ends."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from blockyard.client.client import Client, Pool
from blockyard.client.errors import ConnectionLost
from blockyard.core.errors import PoolNotFound


@contextmanager
def own_pool(client: Client, name: str | None, num_blocks: int, block_size: int) -> Iterator[Pool]:
    """A new pool, deleted at the end with all that it holds.

    Args:
        client: Of its server.
        name: Not that of a pool that stands; None draws one.
        num_blocks: The null block included.
        block_size: Tokens a block.

    Raises:
        click.ClickException: A pool of this name stands: it is somebody's, and not ours to delete.
    """
    pool = client.pool(name or f"replay-{secrets.token_hex(4)}")
    with suppress(PoolNotFound):
        pool.describe()
        raise click.ClickException(
            f"pool {pool.name} exists already, and a replay deletes its pool at the end: choose another name"
        )
    client.create_pool(pool.name, num_blocks=num_blocks, block_size=block_size, publish="on_allocate")
    try:
        yield pool
    finally:
        with suppress(ConnectionLost):  # a server that is gone has taken the pool along
            pool.delete(force=True)
