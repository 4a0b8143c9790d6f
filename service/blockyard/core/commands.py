"""What can be asked of a pool: every change of its state is one of these values.

A command is plain data. Applied in the same order with the same times, the same commands give the same
state, so they can be journalled and replayed. Ranges are checked by the pool, not here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from blockyard.core.extra_keys import Extras
from blockyard.core.ids import (
    NO_TENANT,
    BlockHash,
    BlockId,
    LeaseId,
    PinId,
    SequenceHandle,
    SequenceId,
    TenantId,
    WorkerId,
)
from blockyard.core.quota import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCommand:
    """Fields of every command.

    Attributes:
        tenant: Whose command it is. Leases and sequences of others are none to it.
        epoch: The pool's epoch as the caller knows it; None where the caller does not care.
    """

    tenant: TenantId = NO_TENANT
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCommand(PoolCommand):
    """A command under a lease, which it renews."""

    lease_id: LeaseId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateLease(PoolCommand):
    """Open a lease of ``ttl_ms`` (at least 1). ``lease_id`` is new to the pool: callers draw it at random."""

    lease_id: LeaseId
    holder: str
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLease(LeaseCommand):
    """Start the lease's time anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLease(LeaseCommand):
    """End a lease and free all it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireLeases(PoolCommand):
    """Free what every lease and pin holds whose time has run out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePin(PoolCommand):
    """Keep a prefix for ``ttl_ms`` (at least 1). ``pin_id`` is new to the pool: callers draw it at random.

    Attributes:
        hard: Hold its blocks, all of which have to be cached now. Else they are only evicted last, whenever
            they were cached.
        block_hashes, token_ids, extras, tenant_only: The prefix, as for `Admission`: its full blocks count.
        num_reserved_blocks: Free blocks that a hard pin leaves to those who wait.
    """

    pin_id: PinId
    ttl_ms: int
    hard: bool = False
    block_hashes: Sequence[BlockHash] = ()
    token_ids: Sequence[int] = ()
    extras: Extras | None = None
    tenant_only: bool = False
    num_reserved_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewPin(PoolCommand):
    """Start a pin's time anew; from now on it is ``ttl_ms`` where that is given."""

    pin_id: PinId
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePin(PoolCommand):
    """End a pin."""

    pin_id: PinId


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Blocks for a sequence's tokens; see `Allocate` for one call, `Step` for many.

    Attributes:
        sequence_id: The caller's name for the sequence.
        num_tokens: Tokens that the sequence has, prompt and output, in all.
        max_new_tokens: At most so many of them are given slots now; None for all.
        end_at_state: Give slots to fewer of them where they then end at a recurrent state that others can
            find: see `blockyard.core.chunk_ends`. Not where guesses are among the tokens.
        num_lookahead_tokens: Slots beyond, for speculated tokens. Never published.
        block_hashes: Hashes not sent before, at the pool's hash block size.
        token_ids: Instead of hashes: the tokens not sent before. The pool hashes them.
        event_token_ids: Beside hashes: the tokens not sent before, for events alone.
        extras: What else the tokens' KV depends on. Given with the first tokens.
        tenant_only: Nobody else is to find this content, also where the pool shares it across tenants. A
            cache salt says so as well.
        full_sequence_must_fit: Refuse unless all ``num_tokens`` would fit.
        skip_prefix_cache: Do not look for a cached prefix.
        num_prompt_tokens: Of a new sequence: tokens of its prompt; None for all that it has.
        num_encoder_tokens: Of a new sequence: tokens of its encoder's input.
    """

    sequence_id: SequenceId
    num_tokens: int
    max_new_tokens: int | None = None
    end_at_state: bool = False
    num_lookahead_tokens: int = 0
    block_hashes: Sequence[BlockHash] = ()
    token_ids: Sequence[int] = ()
    event_token_ids: Sequence[int] = ()
    extras: Extras | None = None
    tenant_only: bool = False
    full_sequence_must_fit: bool = False
    skip_prefix_cache: bool = False
    num_prompt_tokens: int | None = None
    num_encoder_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate(LeaseCommand):
    """Admit a sequence, or extend one that the lease holds already.

    Attributes:
        admission: What is asked for.
        num_computed_tokens: How many tokens are computed, where speculated ones were rejected and the pool's
            own count is too high; None for the pool's count. Only for a sequence that is known.
        num_reserved_blocks: Free blocks that a new sequence leaves to those who wait.
        is_waiting: Its caller waits for blocks: a refusal for want of them is not its last answer.
    """

    admission: Admission
    num_computed_tokens: int | None = None
    num_reserved_blocks: int = 0
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(LeaseCommand):
    """The KV of the first ``num_computed_tokens`` tokens is written.

    Where recurrent layers keep states for others, a count at which a block ends says that a chunk did.
    """

    sequence_id: SequenceId
    num_computed_tokens: int
    block_hashes: Sequence[BlockHash] = ()
    token_ids: Sequence[int] = ()
    event_token_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(LeaseCommand):
    """Begin new sequences that go on from where ``sequence_id`` stands, and share its blocks.

    ``block_hashes``, ``token_ids`` and ``event_token_ids``: what of its tokens was not sent before.
    """

    sequence_id: SequenceId
    new_sequence_ids: Sequence[SequenceId]
    block_hashes: Sequence[BlockHash] = ()
    token_ids: Sequence[int] = ()
    event_token_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(LeaseCommand):
    """Free whole sequences; ids that the lease does not hold are reported, not refused."""

    sequence_ids: Sequence[SequenceId]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommit:
    """Columns of equal length: each sequence and how many of its tokens are written."""

    sequences: Sequence[SequenceHandle] = ()
    num_computed_tokens: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExtend:
    """Columns of equal length: each sequence and the tokens that it has to have slots for.

    ``num_computed_tokens``, where given, replaces the pool's counts, as in `Allocate`.
    ``block_hashes``, ``token_ids`` and ``event_token_ids``: by handle, what was not sent before.
    ``only_changes``: the reply lists those sequences alone whose block tables grew or could not.
    """

    sequences: Sequence[SequenceHandle] = ()
    num_tokens: Sequence[int] = ()
    num_computed_tokens: Sequence[int] | None = None
    num_lookahead_tokens: int = 0
    block_hashes: Mapping[SequenceHandle, Sequence[BlockHash]] = field(default_factory=dict)
    token_ids: Mapping[SequenceHandle, Sequence[int]] = field(default_factory=dict)
    event_token_ids: Mapping[SequenceHandle, Sequence[int]] = field(default_factory=dict)
    only_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(LeaseCommand):
    """One scheduler step: commit, then free, then extend, then admit, as one unit.

    ``step_id``, where given, rises from step to step; the last one repeated gets its reply again.
    ``num_reserved_blocks``: free blocks that what is admitted leaves to those who wait.
    """

    step_id: int | None = None
    commit: StepCommit = StepCommit()
    free: Sequence[SequenceHandle] = ()
    extend: StepExtend = field(default_factory=StepExtend)
    admit: Sequence[Admission] = ()
    num_reserved_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateBlocks(LeaseCommand):
    """Blocks without a sequence, held by the lease alone. The rest is as for `Allocate`."""

    num_blocks: int
    num_reserved_blocks: int = 0
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBlocks(LeaseCommand):
    """Give back blocks of `AllocateBlocks`: all of them or, if one is not held, none."""

    block_ids: Sequence[BlockId]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPrefixCache(PoolCommand):
    """Forget every hash, if no block is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuota(PoolCommand):
    """Give a tenant, which need not have called yet, a quota; None takes it back."""

    holder: TenantId
    quota: Quota | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(PoolCommand):
    """The server was away: who was there before counts as having called just now.

    ``since_ms``: the last time that was known before. Leases that had run out by then stay so.
    """

    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterWorker(PoolCommand):
    """A worker holds the tensors of ``rank``: see `blockyard.core.workers.Worker`.

    One whose memory is new begins an epoch, unless the pool was never used.
    """

    worker_id: WorkerId
    rank: int
    device: str
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(PoolCommand):
    """A worker is there. ``incarnation``: the caller's; None where it does not say."""

    worker_id: WorkerId
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWorker(PoolCommand):
    """A worker has gone for good, and its memory with it. ``incarnation``: as for `Heartbeat`."""

    worker_id: WorkerId
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotent:
    """A command to be done once, however often it arrives.

    ``fingerprint`` tells another request under the same key from a repeat of the first.
    """

    key: str
    fingerprint: bytes
    command: PoolCommand


Command: TypeAlias = PoolCommand | Idempotent


def unkeyed(command: Command) -> PoolCommand:
    """``command`` without its idempotency key."""
    return command.command if isinstance(command, Idempotent) else command
