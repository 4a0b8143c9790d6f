"""A pool's definition and its snapshots as a journal keeps them."""

import json
from dataclasses import replace
from typing import Any

import ormsgpack

from blockyard.core.config import PoolConfig, config_from_state, config_to_state
from blockyard.core.errors import BlockyardError
from blockyard.core.pool import Pool
from blockyard.planning.planner import Plan
from blockyard.server.journal.errors import DamagedJournal, NewerJournal
from blockyard.server.pool_config_body import PoolConfigBody

_OPTIONS = ormsgpack.OPT_NON_STR_KEYS


def encode_definition(config: PoolConfig, body: bytes | None) -> bytes:
    """What a pool was created from: its configuration and, where that follows from a plan, the request."""
    request = None if body is None else body.decode()
    return json.dumps({"config": config_to_state(config), "request": request}).encode()


def decode_definition(name: str, definition: bytes) -> tuple[PoolConfig, Plan | None]:
    """The inverse, for the pool of ``name``: its plan is made once more.

    Raises:
        NewerJournal: This version would not make the same pool of it.
    """
    try:
        stored: dict[str, Any] = json.loads(definition)
        config = config_from_state(stored["config"])
        if stored["request"] is None:
            return config, None
        planned_config, plan = PoolConfigBody.model_validate_json(stored["request"]).configure()
    except (BlockyardError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise NewerJournal(
            f"pool {name!r} was made by another version, and this one cannot read its configuration: "
            f"{error}. Start the version that made it"
        ) from error
    # A request that names no eviction gets the default, which no plan says, and in which versions differ.
    if replace(planned_config, eviction=config.eviction) != config:
        raise NewerJournal(
            f"pool {name!r} was planned by another version, and this one plans it otherwise: start that "
            "version, drain the pool, and create it anew with this one"
        )
    return config, plan


def encode_state(pool: Pool) -> bytes:
    """``pool`` as a snapshot has it."""
    return ormsgpack.packb(pool.snapshot(), option=_OPTIONS)


def decode_state(name: str, state: bytes) -> Pool:
    """The inverse, for the pool of ``name``.

    Raises:
        DamagedJournal: It is none.
        NewerJournal: Another version took it.
    """
    try:
        document = ormsgpack.unpackb(state, option=_OPTIONS)
    except ValueError as error:
        raise DamagedJournal(f"the snapshot of pool {name!r} cannot be read: {error}") from error
    try:
        return Pool.restore(document)
    except Exception as error:
        # It is as it was written, its file's checksum says: whatever goes wrong, this version cannot read it.
        raise NewerJournal(
            f"the snapshot of pool {name!r} was taken by another version, or on a machine of another byte "
            f"order: {error}. Start there"
        ) from error
