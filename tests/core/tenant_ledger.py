"""Who holds which blocks, told by replies alone, and what each tenant may have: worked out anew each time."""

from collections import defaultdict
from dataclasses import dataclass, field

from blockyard.core.ids import BlockId, LeaseId, SequenceId, TenantId
from blockyard.core.quota import NO_QUOTA, Quota


@dataclass
class LedgerLease:
    """A lease: the blocks that its sequences and it itself hold."""

    tenant: TenantId
    tables: dict[SequenceId, list[BlockId]] = field(default_factory=dict)
    raw_blocks: set[BlockId] = field(default_factory=set)

    def blocks(self) -> set[BlockId]:
        return self.raw_blocks.union(*self.tables.values())


class TenantLedger:
    """Of a pool of ``num_blocks``, of which new sequences leave ``watermark`` free."""

    def __init__(self, num_blocks: int, watermark: int) -> None:
        self.num_usable = num_blocks - 1
        self.watermark = watermark
        self.leases: dict[LeaseId, LedgerLease] = {}
        self.quotas: defaultdict[TenantId, Quota] = defaultdict(lambda: NO_QUOTA)
        self.is_promised = True
        """Whether all guarantees could be kept at some time since quotas changed last."""

    def held(self, tenant: TenantId) -> set[BlockId]:
        return set().union(*(lease.blocks() for lease in self.leases.values() if lease.tenant == tenant))

    def held_by_anybody(self) -> set[BlockId]:
        return set().union(*(lease.blocks() for lease in self.leases.values()))

    def tenants(self) -> set[TenantId]:
        return {lease.tenant for lease in self.leases.values()} | set(self.quotas)

    def num_due(self, tenant: TenantId) -> int:
        """Guaranteed blocks that it does not hold."""
        return max(self.quotas[tenant].guaranteed_blocks - len(self.held(tenant)), 0)

    def can_keep_promises(self) -> bool:
        """Whether all tenants could hold what is guaranteed to them, whoever gives back what first."""
        if not any(quota.guaranteed_blocks for quota in self.quotas.values()):
            return True
        needed = (
            max(self.quotas[tenant].guaranteed_blocks, len(self.held(tenant))) for tenant in self.tenants()
        )
        return sum(needed) <= self.num_usable

    def verdict(
        self, tenant: TenantId, hit: list[BlockId], num_new: int, *, num_reserved: int, is_new: bool
    ) -> str:
        """What becomes of a request for a hit and for ``num_new`` blocks: a code, or "given"."""
        everybody, own = self.held_by_anybody(), self.held(tenant)
        num_from_free = num_new + len(set(hit) - everybody)
        num_gained = num_new + len(set(hit) - own)
        if not num_gained:
            return "given"
        at_most = self.quotas[tenant].max_blocks
        if at_most is not None and len(own) + num_gained > at_most:
            return "quota_exceeded"
        num_free = self.num_usable - len(everybody)
        if any(quota.guaranteed_blocks for quota in self.quotas.values()):
            num_from_free = num_gained
            num_free = self.num_usable - sum(len(self.held(each)) for each in self.tenants())
        num_left = num_free - num_from_free
        if num_left >= 0 and num_from_free <= self.num_due(tenant):
            return "given"
        for other in self.tenants() - {tenant}:
            num_left -= self.num_due(other)
        num_left -= num_reserved + (self.watermark if is_new else 0)
        return "given" if num_left >= 0 else "insufficient_blocks"
