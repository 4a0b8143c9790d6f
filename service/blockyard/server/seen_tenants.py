"""The tenants of a pool as a watcher sees them in one look."""

import heapq
from dataclasses import dataclass, field

from blockyard.core.ids import NO_TENANT
from blockyard.core.pool import Pool
from blockyard.server.pools import Pools
from blockyard.server.tenant_routes import TenantReply

MAX_TENANTS = 64
"""That are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTenants:
    """Tenants, where any has a name.

    Attributes:
        num_named: How many have one.
        told: Those that are told of, by name.
    """

    num_named: int = 0
    told: list[TenantReply] = field(default_factory=list)

    @classmethod
    def of(cls, pools: Pools, name: str, pool: Pool) -> "SeenTenants":
        """Those of ``pool``, which ``pools`` have under ``name``."""
        num_named = sum(tenant.is_there and tenant.name != NO_TENANT for tenant in pool.tenants)
        if num_named == 0:
            return cls()
        waiting = {tenant.name: pools.num_waiting(name, tenant.name) for tenant in pool.tenants}
        present = [tenant for tenant in pool.tenants if tenant.is_there]
        most = heapq.nlargest(
            MAX_TENANTS, present, key=lambda tenant: (waiting[tenant.name], tenant.num_held_blocks)
        )
        return cls(
            num_named=num_named,
            told=[
                TenantReply.of(pools, name, pool, tenant.name)
                for tenant in sorted(most, key=lambda tenant: tenant.name)
            ],
        )
