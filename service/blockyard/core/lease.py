"""Leases: who holds what, and until when."""

from dataclasses import dataclass, field
from typing import Any

from blockyard.core.codec import decode_value, encode_value
from blockyard.core.ids import NO_TENANT, BlockId, LeaseId, SequenceHandle, SequenceId
from blockyard.core.replies import Stepped
from blockyard.core.reply_memory import ReplyMemory
from blockyard.core.sequence import Sequence
from blockyard.core.tenants import Tenant, Tenants


@dataclass(slots=True, kw_only=True)
class Lease:
    """A holder's claim; all of it comes back when the lease ends.

    Attributes:
        tenant: Whose it is.
        epoch: The pool's when it was granted: what its sequences cached is gone once the pool has moved on.
        expires_at_ms: When it ends unless renewed, on the clock that commands are given.
        sequences: Its live sequences, in the order of their admission.
        by_handle: The same by their handles.
        raw_blocks: Blocks held without a sequence, in the order in which they were given.
        replies: Outcomes of its calls by idempotency key.
        last_step: The reply to its last step that had an id.
        copies: Blocks that its workers were told to copy, from and to; both are held until its next call.
    """

    lease_id: LeaseId
    tenant: Tenant
    holder: str
    epoch: int
    ttl_ms: int
    expires_at_ms: int
    replies: ReplyMemory
    sequences: dict[SequenceId, Sequence] = field(default_factory=dict)
    by_handle: dict[SequenceHandle, Sequence] = field(default_factory=dict)
    raw_blocks: dict[BlockId, None] = field(default_factory=dict)
    last_step: Stepped | None = None
    copies: list[tuple[BlockId, BlockId]] = field(default_factory=list)

    def to_state(self) -> dict[str, Any]:
        """The lease as plain data, without its sequences."""
        return {
            "lease_id": self.lease_id,
            "tenant": self.tenant.name,
            "holder": self.holder,
            "epoch": self.epoch,
            "ttl_ms": self.ttl_ms,
            "expires_at_ms": self.expires_at_ms,
            "raw_blocks": list(self.raw_blocks),
            "replies": self.replies.to_state(),
            "last_step": encode_value(self.last_step),
            "copies": [list(copy) for copy in self.copies],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], tenants: Tenants, max_replies: int) -> "Lease":
        """The lease of one of ``tenants`` that ``state`` was taken from, without its sequences.

        It remembers ``max_replies``.
        """
        return cls(
            lease_id=state["lease_id"],
            tenant=tenants.of(state.get("tenant", NO_TENANT)),
            holder=state["holder"],
            epoch=state["epoch"],
            ttl_ms=state["ttl_ms"],
            expires_at_ms=state["expires_at_ms"],
            raw_blocks=dict.fromkeys(state["raw_blocks"]),
            replies=ReplyMemory.from_state(state["replies"], max_replies),
            last_step=decode_value(state["last_step"]),
            copies=[(source, destination) for source, destination in state["copies"]],
        )
