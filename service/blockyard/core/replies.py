"""What a pool answers. Plain data, one class for each kind of answer; every reply carries the epoch."""

from dataclasses import dataclass

from blockyard.core.ids import BlockId, LeaseId, PinId, SequenceHandle, SequenceId, TenantId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """``epoch``: the pool's epoch when it answered."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted(Reply):
    """A lease that stands until ``expires_at_ms`` on the server's clock (ms since 1970)."""

    lease_id: LeaseId
    ttl_ms: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased(Reply):
    """What came back with a lease. Blocks are counted that became free."""

    num_freed_sequences: int
    num_freed_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesExpired(Reply):
    """The leases that had run out, in the order of their expiry, and then the pins likewise."""

    lease_ids: list[LeaseId]
    pin_ids: list[PinId]
    num_freed_sequences: int
    num_freed_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(Reply):
    """A pin that stands until ``expires_at_ms`` on the server's clock (ms since 1970).

    Attributes:
        num_tokens: Of the prefix's full blocks.
        num_cached_tokens: So many of them are a hit now; of a hard pin, what it holds.
        num_blocks: Blocks that have a hash of the prefix now; of a hard pin, those that it holds.
    """

    pin_id: PinId
    hard: bool
    ttl_ms: int
    expires_at_ms: int
    num_tokens: int
    num_cached_tokens: int
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpinned(Reply):
    """A pin has ended. Blocks are counted that became free."""

    num_freed_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Blocks for a sequence.

    Attributes:
        sequence: The handle that `Step` knows the sequence by.
        num_cached_tokens: Tokens of the cached prefix.
        num_new_tokens: Tokens that were given slots by this call.
        block_ids: Per group, the entries appended to its block table, cached ones included.
    """

    sequence: SequenceHandle
    num_cached_tokens: int
    num_new_tokens: int
    block_ids: list[list[BlockId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated(Reply):
    """What `Admitted` says, the block copies to make first ([source, destination]), and what is left.

    ``num_cached_tokens`` is None on later calls for a sequence; ``block_ids`` are those appended by this one.
    ``replaced``: entries of its tables that are another block from now on, as forks shared the one before:
    [sequence, group, position, block] each. None where there is none.
    """

    sequence: SequenceHandle
    num_cached_tokens: int | None
    num_new_tokens: int
    block_ids: list[list[BlockId]]
    copies: list[list[BlockId]]
    num_free_blocks: int
    replaced: list[list[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Reply):
    """The new ``sequences``, as they were asked for, and all of their block tables, per group.

    All have ``num_computed_tokens`` with slots, of which ``num_committed_tokens`` are known to be written.
    ``copies`` as in `Allocated`.
    """

    sequences: list[SequenceHandle]
    block_ids: list[list[list[BlockId]]]
    num_computed_tokens: int
    num_committed_tokens: int
    copies: list[list[BlockId]]
    num_free_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Reply):
    """``num_computed_tokens`` are written so far; ``num_published_blocks`` became hits by this call."""

    num_computed_tokens: int
    num_published_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed(Reply):
    """``unknown``: the ids that the lease did not hold. Blocks are counted that became free."""

    num_freed_blocks: int
    num_free_blocks: int
    unknown: list[SequenceId]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExtended:
    """``sequences`` that got slots, with the ``block_ids`` appended per group; and those that did not.

    Where only changes were asked for, all others got slots, and ``unlisted`` is what their tables got: an
    empty list a group. Else it is None.
    """

    sequences: list[SequenceHandle]
    block_ids: list[list[list[BlockId]]]
    insufficient: list[SequenceHandle]
    unlisted: list[list[BlockId]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An admission that was not granted: the error's ``code`` and sentence, and those figures that it has."""

    code: str
    detail: str
    num_required_blocks: int | None = None
    num_free_blocks: int | None = None
    num_usable_blocks: int | None = None
    num_held_blocks: int | None = None
    num_quota_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped(Reply):
    """The answer to a step; ``admit`` in the order asked, ``replaced`` as in `Allocated`."""

    step_id: int | None
    extend: StepExtended
    copies: list[list[BlockId]]
    admit: list[Admitted | Refused]
    num_free_blocks: int
    replaced: list[list[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksAllocated(Reply):
    """Raw blocks, the lease's until it frees them or ends."""

    block_ids: list[BlockId]
    num_free_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksFreed(Reply):
    """Raw blocks given back."""

    num_freed_blocks: int
    num_free_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReset(Reply):
    """``ok`` is false, and nothing has changed, while a block is held."""

    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState(Reply):
    """A tenant in a pool: its quota, and what it has. Blocks are the device's, each counted once."""

    tenant: TenantId
    guaranteed_blocks: int
    max_blocks: int | None
    weight: int
    num_held_blocks: int
    num_leases: int
    num_sequences: int
    num_pins: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Reply):
    """``num_leases`` got their time anew."""

    num_leases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNoted(Reply):
    """A worker is known, and has to call every ``heartbeat_ms``."""

    worker_id: WorkerId
    heartbeat_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRemoved(Reply):
    """A worker is not known any more."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Reply):
    """The longest cached prefix: its tokens, and its blocks per group (null where none is needed)."""

    num_cached_tokens: int
    block_ids: list[list[BlockId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixesFound(Reply):
    """How much of each prefix is cached, in the order asked. All of its full blocks count."""

    num_cached_tokens: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceState(Reply):
    """A live sequence.

    ``num_computed_tokens`` counts the cached prefix and all tokens granted; ``num_committed_tokens`` those
    whose KV is known to be written.
    """

    sequence: SequenceHandle
    lease_id: LeaseId
    num_tokens: int
    num_computed_tokens: int
    num_committed_tokens: int
    block_ids: list[list[BlockId]]
