"""The routes of a pool's tenants: what each is promised, and what it has. Ordinary FastAPI."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from blockyard.core.commands import SetQuota
from blockyard.core.errors import PoolNotFound, StaleEpoch, TenantNotFound
from blockyard.core.ids import TenantId
from blockyard.core.pool import Pool
from blockyard.core.quota import MAX_WEIGHT, Quota
from blockyard.server.access.principal import Principal
from blockyard.server.access.protection import Asking
from blockyard.server.api_router import api_router
from blockyard.server.body import TENANT_PATTERN, Count, PositiveCount
from blockyard.server.clock import Clock
from blockyard.server.pools import Pools
from blockyard.server.refusals import refusals
from blockyard.server.schemas import PoolBody

TenantName = Annotated[
    str, Path(pattern=f"^{TENANT_PATTERN}$", description="Letters, digits, '.', '_' and '-', 64 at most.")
]


class QuotaBody(PoolBody):
    """What a tenant may count on in a pool, and how far it may go."""

    guaranteed_blocks: Count = Field(0, description="So many it can always hold, whatever the others do.")
    max_blocks: Count | None = Field(None, description="More it never holds; null: no bound.")
    weight: Annotated[PositiveCount, Field(le=MAX_WEIGHT)] = Field(
        1, description="Its share, beside the others', of what comes free while several wait."
    )

    def quota(self) -> Quota:
        """The same for the core."""
        return Quota(guaranteed_blocks=self.guaranteed_blocks, max_blocks=self.max_blocks, weight=self.weight)


class TenantReply(BaseModel):
    """A tenant in a pool. Blocks are the device's; one that several of its sequences hold counts once."""

    tenant: str
    guaranteed_blocks: int
    max_blocks: int | None
    weight: int
    num_held_blocks: int
    num_leases: int
    num_sequences: int
    num_pins: int
    num_waiting: int = Field(description="Calls that wait for blocks.")

    @classmethod
    def of(cls, pools: Pools, name: str, pool: Pool, tenant: TenantId) -> "TenantReply":
        """``tenant`` in ``pool``, which ``pools`` have under ``name``."""
        told = asdict(pool.tenant(tenant))
        del told["epoch"]
        return cls(**told, num_waiting=pools.num_waiting(name, tenant))


class TenantsReply(BaseModel):
    """The tenants that have a lease, a pin or a quota, or the caller alone, by name."""

    epoch: int
    tenants: list[TenantReply]


def tenant_routes(pools: Pools, clock: Clock) -> APIRouter:
    """The routes over ``pools``, by the time of ``clock``."""
    router = api_router("/pools/{pool}/tenants", tag="tenants")

    def set_quota(
        pool: str, tenant: str, quota: Quota | None, epoch: int | None, asking: Principal
    ) -> TenantReply:
        command = SetQuota(tenant=asking.tenant, epoch=epoch, holder=TenantId(tenant), quota=quota)
        pools.apply(pool, command, clock.now_ms())
        return TenantReply.of(pools, pool, pools.get(pool), command.holder)

    @router.get(
        "",
        summary="A pool's tenants: what they are promised, and what they hold.",
        responses=refusals(PoolNotFound),
    )
    async def list_tenants(pool: str, principal: Asking) -> TenantsReply:
        found = pools.get(pool)
        names = [principal.tenant]
        if principal.sees_all:
            names = sorted(tenant.name for tenant in found.tenants if tenant.is_there)
        return TenantsReply(
            epoch=found.epoch, tenants=[TenantReply.of(pools, pool, found, name) for name in names]
        )

    @router.get("/{tenant}", summary="One of them.", responses=refusals(PoolNotFound, TenantNotFound))
    async def describe_tenant(pool: str, tenant: TenantName, principal: Asking) -> TenantReply:
        found, name = pools.get(pool), TenantId(tenant)
        known = found.tenants.find(name) if principal.sees_all else None
        if name != principal.tenant and (known is None or not known.is_there):
            raise TenantNotFound(f"there is no tenant {tenant!r} here: it has no lease, no pin and no quota")
        return TenantReply.of(pools, pool, found, name)

    @router.put(
        "/{tenant}",
        summary="Set a tenant's quota. What it holds already stays its own.",
        responses=refusals(PoolNotFound, StaleEpoch),
    )
    async def put_quota(pool: str, tenant: TenantName, body: QuotaBody, principal: Asking) -> TenantReply:
        return set_quota(pool, tenant, body.quota(), body.epoch, principal)

    @router.delete("/{tenant}", summary="Take a tenant's quota back.", responses=refusals(PoolNotFound))
    async def delete_quota(pool: str, tenant: TenantName, principal: Asking) -> TenantReply:
        return set_quota(pool, tenant, None, None, principal)

    return router
