"""The end of leases and pins whose time is over: looked for again and again while the server runs."""

import asyncio

import structlog

from blockyard.server.clock import Clock
from blockyard.server.pools import Pools

log = structlog.get_logger("blockyard.server")

TICK_S = 0.02
"""How often run-out leases and pins are looked for."""

RETRY_S = 0.1
"""The pause after a failure: short enough for the clock, long enough for the log."""


async def expire_leases(pools: Pools, clock: Clock) -> None:
    """End the leases and pins of ``pools`` that have run out, for ever, whatever goes wrong in one turn.

    Each turn is a tick of ``clock`` as well.
    """
    while True:
        await asyncio.sleep(TICK_S)
        clock.tick()
        try:
            expired = pools.expire(clock.now_ms())
        except Exception:
            log.exception("leases could not be expired")
            await asyncio.sleep(RETRY_S)
            continue
        for name, reply in expired:
            if not reply.lease_ids:  # that pins end is in order
                log.info("pins expired", pool=name, pin_ids=reply.pin_ids)
                continue
            log.warning(
                "leases expired",
                pool=name,
                lease_ids=reply.lease_ids,
                pin_ids=reply.pin_ids,
                num_freed_sequences=reply.num_freed_sequences,
                num_freed_blocks=reply.num_freed_blocks,
            )
