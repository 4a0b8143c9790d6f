"""Tenants: who leases belong to, and what else a pool keeps for each."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from blockyard.core.ids import NO_TENANT, TenantId
from blockyard.core.quota import NO_QUOTA, Quota
from blockyard.core.reply_memory import ReplyMemory

REPLIES_FACTOR = 4
"""A tenant's calls without a lease are remembered so many times as long as those of a lease."""


class Tenant:
    """One tenant in one pool.

    Attributes:
        name: Its name.
        number: Short for it, from 1, the same for as long as the pool is in memory.
        quota: What it is promised.
        has_quota: Whether somebody has set it.
        num_held_blocks: The device's blocks that its leases hold, each once; kept by `Charges`, and 0 in a
            pool that has none.
        num_leases, num_sequences, num_pins: Live ones.
        num_pinned_hashes: Block hashes that its pins go by.
        replies: Outcomes of its calls without a lease by idempotency key.
    """

    __slots__ = (
        "has_quota",
        "name",
        "num_held_blocks",
        "num_leases",
        "num_pinned_hashes",
        "num_pins",
        "num_sequences",
        "number",
        "quota",
        "replies",
    )

    def __init__(self, name: TenantId, number: int, quota: Quota, replies: ReplyMemory) -> None:
        self.name = name
        self.number = number
        self.quota = quota
        self.has_quota = False
        self.num_held_blocks = 0
        self.num_leases = 0
        self.num_sequences = 0
        self.num_pins = 0
        self.num_pinned_hashes = 0
        self.replies = replies

    @property
    def is_there(self) -> bool:
        """Whether it has anything here: a lease, a pin or a quota."""
        return self.has_quota or self.num_leases > 0 or self.num_pins > 0

    @property
    def num_due_blocks(self) -> int:
        """Guaranteed blocks that it does not hold yet."""
        return max(self.quota.guaranteed_blocks - self.num_held_blocks, 0)


class Tenants:
    """All tenants that a pool has heard of: at first `NO_TENANT` alone.

    Args:
        max_replies: Idempotency keys that a lease remembers.
    """

    def __init__(self, max_replies: int) -> None:
        self._max_replies = max_replies * REPLIES_FACTOR
        self._by_name: dict[TenantId, Tenant] = {}
        self.of(NO_TENANT)

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._by_name.values())

    def find(self, name: TenantId) -> Tenant | None:
        """The tenant of this name, if the pool has heard of it."""
        return self._by_name.get(name)

    def of(self, name: TenantId) -> Tenant:
        """The tenant of this name, known from now on."""
        tenant = self._by_name.get(name)
        if tenant is None:
            number = len(self._by_name) + 1
            tenant = self._by_name[name] = Tenant(name, number, NO_QUOTA, ReplyMemory(self._max_replies))
        return tenant

    def num_promised_to_others(self, name: TenantId) -> int:
        """Blocks that all but the tenant of this name are guaranteed."""
        return sum(tenant.quota.guaranteed_blocks for tenant in self if tenant.name != name)

    @property
    def need_charges(self) -> bool:
        """Whether it matters who holds a block: not while all is `NO_TENANT`'s, and without a quota."""
        return len(self._by_name) > 1 or self._by_name[NO_TENANT].quota != NO_QUOTA

    def to_state(self) -> list[dict[str, Any]]:
        """Names, quotas and remembered replies as plain data; the rest follows from the leases."""
        return [
            {
                "name": tenant.name,
                "quota": asdict(tenant.quota) if tenant.has_quota else None,
                "replies": tenant.replies.to_state(),
            }
            for tenant in self
        ]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Know what `to_state` told."""
        for each in state:
            tenant = self.of(TenantId(each["name"]))
            tenant.has_quota = each["quota"] is not None
            tenant.quota = Quota(**each["quota"]) if tenant.has_quota else NO_QUOTA
            tenant.replies = ReplyMemory.from_state(each["replies"], self._max_replies)
