"""A live sequence: its block tables and how far it has come."""

from dataclasses import dataclass, field
from typing import Any

from blockyard.core.hash_chain import HashChain
from blockyard.core.ids import BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId


@dataclass(slots=True, kw_only=True)
class Sequence:
    """What a pool knows of a sequence.

    ``0 <= num_committed_tokens <= num_computed_tokens <= num_tokens`` holds between calls.

    Attributes:
        tables: Per group, the block at each position; null where it was dropped. Only ever appended to.
        num_published_blocks: Per group, leading blocks that need no publishing any more.
        num_tokens: Tokens that it had when its scheduler last spoke of it.
        num_computed_tokens: Tokens that are cached or were granted slots.
        num_committed_tokens: Tokens whose KV is known to be written.
        block_hashes: One a hash block, from the beginning, as far as they were sent.
        chain: Where hashing goes on, if the scheduler sends token ids.
    """

    sequence_id: SequenceId
    handle: SequenceHandle
    lease_id: LeaseId
    tables: list[list[BlockId]]
    num_published_blocks: list[int]
    num_tokens: int
    num_computed_tokens: int
    num_committed_tokens: int
    block_hashes: list[BlockHash] = field(default_factory=list)
    chain: HashChain | None = None

    def to_state(self) -> dict[str, Any]:
        """The sequence as plain data."""
        return {
            "sequence_id": self.sequence_id,
            "handle": self.handle,
            "lease_id": self.lease_id,
            "tables": [list(table) for table in self.tables],
            "num_published_blocks": list(self.num_published_blocks),
            "num_tokens": self.num_tokens,
            "num_computed_tokens": self.num_computed_tokens,
            "num_committed_tokens": self.num_committed_tokens,
            "block_hashes": list(self.block_hashes),
            "chain": None if self.chain is None else self.chain.to_state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Sequence":
        """The sequence that ``state`` was taken from, sharing nothing with it that can change."""
        chain = state["chain"]
        own = {
            "tables": [list(table) for table in state["tables"]],
            "num_published_blocks": list(state["num_published_blocks"]),
            "block_hashes": list(state["block_hashes"]),
            "chain": None if chain is None else HashChain.from_state(chain),
        }
        return cls(**{**state, **own})
