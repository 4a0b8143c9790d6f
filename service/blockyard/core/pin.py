"""A pin: a prefix that somebody wants to be kept, and until when."""

from dataclasses import dataclass, field
from typing import Any

from blockyard.core.ids import BlockHash, BlockId, PinId
from blockyard.core.tenants import Tenant, Tenants


@dataclass(slots=True, kw_only=True)
class Pin:
    """Soft, it goes by ``block_hashes``; hard, it holds blocks.

    Attributes:
        tenant: Whose it is.
        expires_at_ms: When it ends unless renewed, on the clock that commands are given.
        num_tokens: Of its prefix's full blocks.
        block_hashes: Of a soft one: of these.
        num_held_tokens: Of a hard one: tokens of the hit that it holds.
        block_ids: Of a hard one: per group, the blocks that it holds, each once.
    """

    pin_id: PinId
    tenant: Tenant
    hard: bool
    ttl_ms: int
    expires_at_ms: int
    num_tokens: int
    block_hashes: list[BlockHash] = field(default_factory=list)
    num_held_tokens: int = 0
    block_ids: list[list[BlockId]] = field(default_factory=list)

    @property
    def num_held_blocks(self) -> int:
        """Blocks that it holds."""
        return sum(map(len, self.block_ids))

    def to_state(self) -> dict[str, Any]:
        """The pin as plain data."""
        return {
            "pin_id": self.pin_id,
            "tenant": self.tenant.name,
            "hard": self.hard,
            "ttl_ms": self.ttl_ms,
            "expires_at_ms": self.expires_at_ms,
            "num_tokens": self.num_tokens,
            "block_hashes": list(self.block_hashes),
            "num_held_tokens": self.num_held_tokens,
            "block_ids": [list(blocks) for blocks in self.block_ids],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], tenants: Tenants) -> "Pin":
        """The pin of one of ``tenants`` that ``state`` was taken from."""
        return cls(
            **{
                **state,
                "tenant": tenants.of(state["tenant"]),
                "block_hashes": list(state["block_hashes"]),
                "block_ids": [list(blocks) for blocks in state["block_ids"]],
            }
        )
