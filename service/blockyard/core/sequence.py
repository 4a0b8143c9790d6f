"""A live sequence: its block tables and how far it has come."""

from array import array
from typing import Any

from blockyard.core.extra_keys import event_extra_keys
from blockyard.core.hash_chain import HashChain, Hasher
from blockyard.core.ids import NO_TENANT, BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId, TenantId
from blockyard.core.kv_batch import StoredBlock


class BlockTable:
    """One group's blocks of a sequence.

    Attributes:
        block_ids: The block at each position; null where it was dropped. It never gets shorter.
        num_published: Leading positions that need no publishing any more: hits, nulls, what was published.
        is_edge_published: Whether the prompt's last hash boundary inside a block is a hit.
        edge_state: Position of a state that is one, and that the running state is about to overwrite.
        has_states: Whether states were given, beside one that was found.
        num_retired: Leading positions whose states were dropped.
    """

    __slots__ = (
        "block_ids",
        "edge_state",
        "has_states",
        "is_edge_published",
        "num_published",
        "num_retired",
    )

    def __init__(
        self,
        block_ids: list[BlockId],
        num_published: int = 0,
        is_edge_published: bool = False,
        edge_state: int | None = None,
        has_states: bool = False,
        num_retired: int = 0,
    ) -> None:
        self.block_ids = block_ids
        self.num_published = num_published
        self.is_edge_published = is_edge_published
        self.edge_state = edge_state
        self.has_states = has_states
        self.num_retired = num_retired

    def forked(self, block_ids: list[BlockId]) -> "BlockTable":
        """A fork's table of ``block_ids``. A state that others find is this one's alone, and stays here."""
        return BlockTable(
            block_ids,
            min(self.num_published, len(block_ids)),
            self.is_edge_published,
            None,
            self.has_states,
            self.num_retired,
        )

    def to_state(self) -> dict[str, Any]:
        """The table as plain data."""
        return {
            "block_ids": list(self.block_ids),
            "num_published": self.num_published,
            "is_edge_published": self.is_edge_published,
            "edge_state": self.edge_state,
            "has_states": self.has_states,
            "num_retired": self.num_retired,
        }


class Sequence:
    """What a pool knows of a sequence.

    ``0 <= num_committed_tokens <= num_granted_tokens <= num_tokens`` holds between calls.

    Attributes:
        tenant: Its lease's.
        scope: The tenant that alone finds its blocks; `NO_TENANT` where all do.
        tables: One a group.
        num_tokens: Tokens that it had when its scheduler last spoke of it.
        num_prompt_tokens: Of these, its prompt's.
        num_encoder_tokens: Of its encoder's input; 0 for a model without an encoder.
        num_granted_tokens: Tokens that are cached or were given slots, less those that were taken back.
        num_committed_tokens: Tokens whose KV is known to be written.
        num_forked_tokens: Tokens that it has in common with a fork, or with what it was forked from; 0 where
            there is none. These are not taken back any more.
        block_hashes: One a hash block, from the beginning, as far as they were sent.
        chain: Where hashing goes on, if the scheduler sends token ids.
        token_ids: Those told so far, from the first on, for events; None where nobody follows.
        extend_headroom: Up to so many tokens, lookahead included, an extension that tells nothing new raises
            counts and changes nothing else; 0 where that is not known. See `blockyard.core.headroom`.
        commit_headroom: Likewise a commit.
    """

    __slots__ = (
        "block_hashes",
        "chain",
        "commit_headroom",
        "extend_headroom",
        "handle",
        "lease_id",
        "num_committed_tokens",
        "num_encoder_tokens",
        "num_forked_tokens",
        "num_granted_tokens",
        "num_prompt_tokens",
        "num_tokens",
        "scope",
        "sequence_id",
        "tables",
        "tenant",
        "token_ids",
    )

    def __init__(  # noqa: PLR0913 - its fields, by keyword
        self,
        *,
        sequence_id: SequenceId,
        handle: SequenceHandle,
        lease_id: LeaseId,
        tenant: TenantId,
        scope: TenantId,
        num_tokens: int,
        num_prompt_tokens: int,
        num_encoder_tokens: int,
        block_hashes: list[BlockHash],
        chain: HashChain | None,
        token_ids: "array[int] | None" = None,
        tables: list[BlockTable] | None = None,
        num_granted_tokens: int = 0,
        num_committed_tokens: int = 0,
        num_forked_tokens: int = 0,
    ) -> None:
        self.sequence_id = sequence_id
        self.handle = handle
        self.lease_id = lease_id
        self.tenant = tenant
        self.scope = scope
        self.tables: list[BlockTable] = [] if tables is None else tables
        self.num_tokens = num_tokens
        self.num_prompt_tokens = num_prompt_tokens
        self.num_encoder_tokens = num_encoder_tokens
        self.num_granted_tokens = num_granted_tokens
        self.num_committed_tokens = num_committed_tokens
        self.num_forked_tokens = num_forked_tokens
        self.block_hashes = block_hashes
        self.chain = chain
        self.token_ids = token_ids
        self.extend_headroom = self.commit_headroom = 0

    def forked(self, sequence_id: SequenceId, handle: SequenceHandle, tables: list[BlockTable]) -> "Sequence":
        """A fork of it, which has ``tables``, its tokens and lease, and shares nothing that can change."""
        return Sequence(
            sequence_id=sequence_id,
            handle=handle,
            lease_id=self.lease_id,
            tenant=self.tenant,
            scope=self.scope,
            num_tokens=self.num_tokens,
            num_prompt_tokens=self.num_prompt_tokens,
            num_encoder_tokens=self.num_encoder_tokens,
            block_hashes=list(self.block_hashes),
            chain=self.chain,
            token_ids=None if self.token_ids is None else array("Q", self.token_ids),
            tables=tables,
            num_granted_tokens=self.num_granted_tokens,
            num_committed_tokens=self.num_committed_tokens,
            num_forked_tokens=self.num_granted_tokens,
        )

    @property
    def block_ids(self) -> list[list[BlockId]]:
        """A copy of the block tables."""
        return [list(table.block_ids) for table in self.tables]

    def stored_block(self, *, begin: int, num_tokens: int, hash_block_size: int) -> StoredBlock:
        """What is to be told of its block of ``num_tokens`` tokens from ``begin`` on, now that it is a hit.

        Both begin and end are at a hash, each of ``hash_block_size`` tokens.
        """
        end = begin + num_tokens
        token_ids = None
        if self.token_ids is not None and end <= len(self.token_ids):
            token_ids = self.token_ids[begin:end].tobytes()
        extra_keys = lora_name = None
        if self.chain is not None:
            extras = self.chain.extras
            lora_name = None if extras.lora is None else extras.lora.name
            extra_keys = next(event_extra_keys(extras, block_size=num_tokens, start=begin)) or ()
        block_hash = self.block_hashes[end // hash_block_size - 1]
        parent_hash = self.block_hashes[begin // hash_block_size - 1] if begin else None
        return StoredBlock(block_hash, parent_hash, num_tokens, token_ids, extra_keys, lora_name)

    def to_state(self) -> dict[str, Any]:
        """The sequence as plain data."""
        return {
            "sequence_id": self.sequence_id,
            "handle": self.handle,
            "lease_id": self.lease_id,
            "scope": self.scope,
            "num_tokens": self.num_tokens,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_encoder_tokens": self.num_encoder_tokens,
            "block_hashes": list(self.block_hashes),
            "chain": None if self.chain is None else self.chain.to_state(),
            "token_ids": None if self.token_ids is None else self.token_ids.tobytes(),
            "tables": [table.to_state() for table in self.tables],
            "num_granted_tokens": self.num_granted_tokens,
            "num_committed_tokens": self.num_committed_tokens,
            "num_forked_tokens": self.num_forked_tokens,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], tenant: TenantId, hasher: Hasher | None) -> "Sequence":
        """The sequence of ``tenant`` that ``state`` was taken from, sharing nothing with it that can change.

        ``hasher`` is the pool's; None where the pool cannot hash, and no sequence has a chain.
        """
        rest = {"scope": NO_TENANT, **state, "tenant": tenant}
        rest["tables"] = [
            BlockTable(**{**table, "block_ids": list(table["block_ids"])}) for table in state["tables"]
        ]
        rest["block_hashes"] = list(state["block_hashes"])
        if state.get("token_ids") is not None:
            rest["token_ids"] = array("Q", state["token_ids"])
        if state["chain"] is not None:
            assert hasher is not None
            rest["chain"] = HashChain.from_state(state["chain"], hasher)
        return cls(**rest)
