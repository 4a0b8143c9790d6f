"""Streams of pools that nobody knows: a node has died while it made one, or while it deleted one."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from blockyard.server.cluster.connection import PASSING, Connection
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.registry import Registry

if TYPE_CHECKING:
    from nats.js.api import StreamInfo

log = structlog.get_logger("blockyard.cluster")

SWEEP_EVERY_S = 600.0
AGE_S = 600.0
"""A stream that is younger may be that of a pool which is just being made."""


async def sweep_for_ever(connection: Connection, names: Names, registry: Registry) -> None:
    """Delete what is left over, now and then. Any number of nodes may do so."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await sweep(connection, names, registry, datetime.now(UTC))
        except PASSING as error:
            log.warning("streams that are left over were not looked for", error=repr(error))


async def sweep(connection: Connection, names: Names, registry: Registry, now: datetime) -> None:
    """Delete the streams that are older than `AGE_S` and belong to no pool of ``registry``.

    Raises what NATS says against it.
    """
    streams: list[StreamInfo] = []
    while page := await connection.jetstream.streams_info(offset=len(streams)):
        streams += page
    await registry.loaded()  # after them: a pool that has been made since is not missed
    if not registry.is_understood:
        return
    known = {pool.key for pool in registry}
    for stream in streams:
        name = stream.config.name or ""
        key = names.key_of(name)
        age_s = (now - stream.created).total_seconds() if stream.created else 0.0
        if key is not None and key not in known and age_s > AGE_S:
            log.warning("a stream of no pool is deleted", stream=name)
            await connection.jetstream.delete_stream(name)
