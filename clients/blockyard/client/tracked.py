"""One sequence as its scheduler knows it: how many tokens, what of them was sent, and which blocks it has."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from blockyard.core.commands import Admission
from blockyard.core.errors import InvalidRequest
from blockyard.core.hash_chain import HashChain
from blockyard.core.hashing import check_token_ids
from blockyard.core.ids import BlockHash, BlockId, SequenceHandle, SequenceId
from blockyard.core.replies import Admitted, Refused


@dataclass(slots=True, kw_only=True, eq=False)
class Tracked:
    """A sequence from its addition, or its last preemption, to its end.

        0         num_computed_tokens    num_granted_tokens      num_tokens
        |-- KV written --|-- has slots, unwritten --|-- known, without slots --|

    Speculated tokens carry ``num_granted_tokens`` beyond ``num_tokens`` until they are appended or rejected;
    slots for lookahead can carry ``num_computed_tokens`` beyond ``num_granted_tokens``, up to ``num_slots``.

    Attributes:
        num_prompt_tokens: Tokens that it was added with: a preempted one's are the same afterwards.
        num_encoder_tokens: Of its encoder's input.
        num_admitted_tokens: Tokens that it had when it was admitted: output of an earlier life is among them.
        chain: Of the known tokens; None where nothing is hashed.
        block_hashes: Of all full blocks of known tokens.
        token_ids: All known tokens, for the pool's events; None where they are not sent.
        tenant_only: No other tenant is to find its blocks: a cache salt is hashed in.
        handle: The server's name for it; None until admitted.
        has_ended: Finished, or replaced by its successor after a preemption.
        refusal: Why the server takes no step that gives it slots; None if nothing is wrong with it.
        num_counted_tokens: The server's count of granted tokens: too high after a rejection.
        num_slots: Tokens that its blocks have slots for: counted ones, and the lookahead that came with them.
        num_committed_tokens: Told to the server as written, and acknowledged.
        num_sent_hashes: Likewise.
        block_ids: Per group, the block table.
    """

    sequence_id: SequenceId
    chain: HashChain | None
    num_tokens: int = 0
    block_hashes: list[BlockHash] = field(default_factory=list)
    token_ids: list[int] | None = None
    tenant_only: bool = False
    full_sequence_must_fit: bool = False
    skip_prefix_cache: bool = False
    num_prompt_tokens: int = 0
    num_encoder_tokens: int = 0
    num_admitted_tokens: int = 0
    handle: SequenceHandle | None = None
    has_ended: bool = False
    refusal: Refused | None = None
    num_computed_tokens: int = 0
    num_granted_tokens: int = 0
    num_counted_tokens: int = 0
    num_slots: int = 0
    num_committed_tokens: int = 0
    num_sent_hashes: int = 0
    block_ids: list[list[BlockId]] = field(default_factory=list)

    def append(self, token_ids: Sequence[int]) -> None:
        """Tokens that are certain.

        Raises:
            InvalidRequest: One of the ids is not a plain integer of at least 0.
        """
        if self.chain is None:
            self.num_tokens += len(check_token_ids(token_ids))
            return
        self.chain, hashes = self.chain.append(token_ids)
        self.block_hashes += hashes
        self.num_tokens = self.chain.num_tokens
        if self.token_ids is not None:
            self.token_ids += token_ids

    def event_token_ids(self, begin: int, end: int) -> Sequence[int]:
        """What its block hashes from ``begin`` to ``end`` stand for; empty where tokens are not sent."""
        if self.chain is None or self.token_ids is None:
            return ()
        block_size = self.chain.hasher.block_size
        return self.token_ids[begin * block_size : end * block_size]

    def note_computed(self, num_tokens: int) -> None:
        """The KV of the first ``num_tokens`` tokens is written; fewer than before change nothing.

        Raises:
            InvalidRequest: Not so many are known, or have slots.
        """
        if not 0 <= num_tokens <= self.num_tokens:
            raise InvalidRequest.of("num_computed_tokens", f"{num_tokens} of {self.num_tokens} known tokens")
        if num_tokens > self.num_slots:
            raise InvalidRequest.of("num_computed_tokens", f"{num_tokens} of {self.num_slots} with slots")
        self.num_computed_tokens = max(self.num_computed_tokens, num_tokens)

    def reject(self, num_tokens: int) -> None:
        """The last ``num_tokens`` that were given slots are no tokens of the sequence.

        Raises:
            InvalidRequest: That would take back tokens that are computed.
        """
        left = self.num_granted_tokens - num_tokens
        if num_tokens < 0 or left < self.num_computed_tokens:
            raise InvalidRequest.of(
                "num_rejected_tokens",
                f"{num_tokens} of {self.num_granted_tokens} granted, {self.num_computed_tokens} are computed",
            )
        self.num_granted_tokens = left

    @property
    def num_committable_tokens(self) -> int:
        """What the server can be told is written: it refuses more than it has granted."""
        return min(self.num_computed_tokens, self.num_granted_tokens, self.num_counted_tokens)

    def admission(
        self, max_new_tokens: int | None, num_lookahead_tokens: int, *, end_at_state: bool
    ) -> Admission:
        """What to ask for it as a new sequence."""
        return Admission(
            sequence_id=self.sequence_id,
            num_tokens=self.num_tokens,
            max_new_tokens=max_new_tokens,
            end_at_state=end_at_state,
            num_lookahead_tokens=num_lookahead_tokens,
            block_hashes=tuple(self.block_hashes),
            event_token_ids=self.event_token_ids(0, len(self.block_hashes)),
            tenant_only=self.tenant_only,
            full_sequence_must_fit=self.full_sequence_must_fit,
            skip_prefix_cache=self.skip_prefix_cache,
            num_prompt_tokens=self.num_prompt_tokens,
            num_encoder_tokens=self.num_encoder_tokens,
        )

    def note_admitted(self, answer: Admitted, admission: Admission) -> None:
        """The server has taken it in."""
        self.handle = answer.sequence
        self.num_admitted_tokens = admission.num_tokens
        self.num_computed_tokens = self.num_committed_tokens = answer.num_cached_tokens
        self.num_granted_tokens = self.num_counted_tokens = answer.num_cached_tokens + answer.num_new_tokens
        self.num_slots = self.num_counted_tokens + admission.num_lookahead_tokens
        self.num_sent_hashes = len(admission.block_hashes)

    def note_extended(
        self,
        *,
        num_counted_tokens: int,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        num_sent_hashes: int,
    ) -> None:
        """The server has given it ``num_new_tokens`` slots, and counts ``num_counted_tokens``."""
        self.num_counted_tokens = num_counted_tokens
        self.num_slots = max(self.num_slots, num_counted_tokens + num_lookahead_tokens)
        self.num_granted_tokens += num_new_tokens
        self.num_sent_hashes = num_sent_hashes

    def grow(self, block_ids: Sequence[Sequence[BlockId]]) -> None:
        """Append to each group's table."""
        if not self.block_ids:
            self.block_ids = [[] for _ in block_ids]
        for table, appended in zip(self.block_ids, block_ids, strict=True):
            table.extend(appended)

    def replace_block(self, group: int, position: int, block: BlockId) -> None:
        """A fork has the block that stood there; this sequence has a copy of it from now on."""
        self.block_ids[group][position] = block

    def forked(self, sequence_id: str) -> "Tracked":
        """The same sequence under another id, not known to the server yet. Lookahead is not in common."""
        return replace(
            self,
            sequence_id=SequenceId(sequence_id),
            block_hashes=list(self.block_hashes),
            token_ids=None if self.token_ids is None else list(self.token_ids),
            handle=None,
            refusal=None,
            num_computed_tokens=min(self.num_computed_tokens, self.num_granted_tokens),
            num_slots=self.num_granted_tokens,
            block_ids=[],
        )

    def successor(self) -> "Tracked":
        """The same sequence without blocks, to be admitted again with all the tokens it has by now."""
        return Tracked(
            sequence_id=self.sequence_id,
            chain=self.chain,
            num_tokens=self.num_tokens,
            block_hashes=self.block_hashes,
            token_ids=self.token_ids,
            tenant_only=self.tenant_only,
            full_sequence_must_fit=self.full_sequence_must_fit,
            skip_prefix_cache=self.skip_prefix_cache,
            num_prompt_tokens=self.num_prompt_tokens,
            num_encoder_tokens=self.num_encoder_tokens,
        )
