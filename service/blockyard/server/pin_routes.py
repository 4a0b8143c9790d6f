"""The list of a pool's pins. Ordinary FastAPI; the calls that change them are pool calls."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from blockyard.core.errors import PoolNotFound
from blockyard.core.pin import Pin
from blockyard.server.access.protection import Asking
from blockyard.server.api_router import api_router
from blockyard.server.clock import Clock
from blockyard.server.pools import Pools
from blockyard.server.refusals import refusals
from blockyard.server.slices import Slices


class PinReply(BaseModel):
    """A pin."""

    pin_id: str
    tenant: str = Field(description="Whose it is; empty for nobody's in particular.")
    hard: bool
    ttl_ms: int
    expires_at_ms: int
    num_tokens: int = Field(description="Of its prefix's full blocks.")
    num_cached_tokens: int = Field(description="So many of them are a hit now; of a hard pin, what it holds.")
    num_held_blocks: int = Field(description="Of a hard pin; a soft one holds none.")

    @classmethod
    def of(cls, pin: Pin, num_cached_tokens: int, clock: Clock) -> "PinReply":
        """``pin`` by the time of ``clock``."""
        return cls(
            pin_id=pin.pin_id,
            tenant=pin.tenant.name,
            hard=pin.hard,
            ttl_ms=pin.ttl_ms,
            expires_at_ms=clock.real_ms(pin.expires_at_ms),
            num_tokens=pin.num_tokens,
            num_cached_tokens=num_cached_tokens,
            num_held_blocks=pin.num_held_blocks,
        )


class PinsReply(BaseModel):
    """The caller's pins, or those of all tenants for those who see all, in the order of their making."""

    epoch: int
    pins: list[PinReply]


def pin_routes(pools: Pools, clock: Clock, slices: Slices) -> APIRouter:
    """The route over ``pools``, by the time of ``clock``; what is cached is looked for in ``slices``."""
    router = api_router("/pools/{pool}/pins", tag="pins")

    @router.get("", summary="A pool's pins.", responses=refusals(PoolNotFound))
    async def list_pins(pool: str, principal: Asking) -> PinsReply:
        found = pools.get(pool)
        whose = None if principal.sees_all else principal.tenant
        pins, _ = await slices.run(found.pins.look(whose))
        if pools.find(pool) is not found:
            raise PoolNotFound(f"pool {pool!r} was deleted in the meantime")
        return PinsReply(
            epoch=found.epoch, pins=[PinReply.of(pin, num_cached, clock) for pin, num_cached in pins]
        )

    return router
