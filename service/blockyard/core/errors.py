"""Everything that can be refused, as one tree.

    BlockyardError
    ├── InvalidRequest             invalid_request             the request can never succeed as it is
    ├── PoolNotFound               pool_not_found
    ├── PoolElsewhere              pool_elsewhere              the same request succeeds at the pool's owner
    ├── SequenceNotFound           sequence_not_found
    ├── PlanNotFound               plan_not_found
    ├── WorkerNotFound             worker_not_found
    ├── PinNotFound                pin_not_found
    ├── TenantNotFound             tenant_not_found
    ├── WorkerReplaced             worker_replaced
    ├── NoEvents                   no_events
    ├── NoCluster                  no_cluster
    ├── PoolExists                 pool_exists
    ├── PoolInUse                  pool_in_use
    ├── SequenceExistsElsewhere    sequence_exists_elsewhere
    ├── InsufficientBlocks         insufficient_blocks         a retry can succeed once others free
    │   └── QuotaExceeded          quota_exceeded              a retry can succeed once its tenant frees
    ├── PrefixNotCached            prefix_not_cached           a retry can succeed once it is computed
    ├── NotOwner                   not_owner
    ├── DoubleFree                 double_free
    ├── StaleEpoch                 stale_epoch
    ├── LeaseExpired               lease_expired
    ├── Unauthorized               unauthorized
    ├── Forbidden                  forbidden
    ├── LimitExceeded              limit_exceeded              a bound that the server's settings name
    ├── BodyTooLarge               body_too_large
    ├── HeadTooLarge               head_too_large
    ├── RequestTimeout             request_timeout             a retry can succeed
    ├── Overloaded                 overloaded                  a retry can succeed after a pause
    ├── NotReady                   not_ready                   a retry can succeed after a pause
    └── PlanError                  a branch of its own: see `blockyard.planning.errors`

An error carries a stable ``code``, a sentence that says what to change, and the figures that its code
names. Whoever raises one has done nothing of what was asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class BlockyardError(Exception):
    """A refusal: ``code`` for programs, ``str(error)`` for people, ``figures`` for both.

    Args:
        detail: One sentence that says what is wrong and what to do about it.
        figures: The values that the code promises, JSON-ready.
    """

    code: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, detail: str, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.figures: dict[str, Any] = dict(figures or {})

    def again(self) -> "BlockyardError":
        """The same refusal without the traceback of the first time."""
        return type(self)(self.detail, self.figures)


class InvalidRequest(BlockyardError):
    """A value is out of range, contradicts another, or names something that cannot be.

    Figures: ``errors``, a list of ``{"field", "message"}``.
    """

    code = "invalid_request"
    title = "The request is not valid"

    @classmethod
    def of(cls, field: str, message: str) -> "InvalidRequest":
        """One field's fault."""
        return cls(f"{field}: {message}", {"errors": [{"field": field, "message": message}]})

    def inside(self, place: str) -> "InvalidRequest":
        """The same fault, found in the part of the request at ``place``, such as ``admit.3``."""
        errors = [{**found, "field": f"{place}.{found['field']}"} for found in self.figures["errors"]]
        return InvalidRequest(f"{place}.{self.detail}", {"errors": errors})


class PoolNotFound(BlockyardError):
    """No pool has this name."""

    code = "pool_not_found"
    title = "No such pool"

    @classmethod
    def of(cls, name: str) -> "PoolNotFound":
        """``name`` is no pool's, or none's that the caller may know of: it is told the same."""
        return cls(f"there is no pool {name!r}: GET /v1/pools lists those there are")


class PoolElsewhere(BlockyardError):
    """Another node of the cluster owns the pool.

    Figures: ``pool``, the owner's ``node``, ``url``, the call's own at the owner, and ``ownership``, the
    pool's number of owners so far.
    """

    code = "pool_elsewhere"
    title = "Another node owns the pool"

    @classmethod
    def of(cls, pool: str, *, node: str, url: str, ownership: int) -> "PoolElsewhere":
        """``pool`` is owned by ``node``, where the whole of ``url`` asks the same."""
        return cls(
            f"node {node!r} owns pool {pool!r}: ask {url}",
            {"pool": pool, "node": node, "url": url, "ownership": ownership},
        )


class SequenceNotFound(BlockyardError):
    """No live sequence has this id or handle."""

    code = "sequence_not_found"
    title = "No such sequence"

    @classmethod
    def of(cls, sequence_id: str) -> "SequenceNotFound":
        """There is none of this id."""
        return cls(f"there is no sequence {sequence_id!r}: allocate for it first")


class PlanNotFound(BlockyardError):
    """The pool was not made from a plan."""

    code = "plan_not_found"
    title = "The pool was not made from a plan"


class WorkerNotFound(BlockyardError):
    """The pool knows no worker of this id."""

    code = "worker_not_found"
    title = "No such worker"


class PinNotFound(BlockyardError):
    """The pin is unknown, was deleted, or ran out, or it is another tenant's."""

    code = "pin_not_found"
    title = "No such pin"

    @classmethod
    def of(cls, pin_id: str) -> "PinNotFound":
        """There is none of this id."""
        return cls(f"there is no pin {pin_id!r}: it is not yours, was deleted, or ran out")


class TenantNotFound(BlockyardError):
    """The pool knows no tenant of this name, or it is not the caller's."""

    code = "tenant_not_found"
    title = "No such tenant"


class WorkerReplaced(BlockyardError):
    """The rank is another worker's, or another incarnation's."""

    code = "worker_replaced"
    title = "Another worker has this rank"


class NoEvents(BlockyardError):
    """The pool was created without events."""

    code = "no_events"
    title = "The pool has no events"


class NoCluster(BlockyardError):
    """The server is no node of a cluster."""

    code = "no_cluster"
    title = "The server is not part of a cluster"

    @classmethod
    def of(cls) -> "NoCluster":
        """This server is none."""
        return cls("this server stands alone and owns all its pools: nodes are started with --cluster")


class PoolExists(BlockyardError):
    """A pool of this name stands with another configuration."""

    code = "pool_exists"
    title = "The pool exists with another configuration"


class PoolInUse(BlockyardError):
    """The pool still has blocks that somebody holds."""

    code = "pool_in_use"
    title = "Blocks of the pool are still held"


class SequenceExistsElsewhere(BlockyardError):
    """The sequence id belongs to another lease."""

    code = "sequence_exists_elsewhere"
    title = "The sequence belongs to another lease"


class InsufficientBlocks(BlockyardError):
    """Too few blocks are free.

    Figures: ``num_required_blocks``, ``num_free_blocks``, and ``num_usable_blocks``, of which all could be.
    """

    code = "insufficient_blocks"
    title = "Too few blocks are free"
    bound: ClassVar[str] = "num_usable_blocks"
    """The figure that says how many can ever be given."""

    @property
    def can_pass(self) -> bool:
        """Whether waiting can help: not where more are required than can ever be given."""
        return bool(self.figures["num_required_blocks"] <= self.figures[self.bound])

    @classmethod
    def of(
        cls, num_required_blocks: int, num_free_blocks: int, num_usable_blocks: int
    ) -> "InsufficientBlocks":
        """``num_required_blocks`` were asked; at most ``num_usable_blocks`` ever are free."""
        advice = "free or preempt sequences, then try again"
        if num_required_blocks > num_usable_blocks:
            advice = f"there never are more than {num_usable_blocks}: ask for fewer tokens at a time"
        return cls(
            f"{num_required_blocks} blocks are needed and {num_free_blocks} are free: {advice}",
            {
                "num_required_blocks": num_required_blocks,
                "num_free_blocks": num_free_blocks,
                "num_usable_blocks": num_usable_blocks,
            },
        )


class QuotaExceeded(InsufficientBlocks):
    """The tenant would hold more blocks than it may.

    Figures: ``num_required_blocks``, ``num_held_blocks``, ``num_quota_blocks``.
    """

    code = "quota_exceeded"
    title = "The tenant's quota is exceeded"
    bound = "num_quota_blocks"

    @classmethod
    def of(cls, num_required_blocks: int, num_held_blocks: int, num_quota_blocks: int) -> "QuotaExceeded":
        """``num_required_blocks`` were asked beside ``num_held_blocks``: more than the quota."""
        advice = "free or preempt sequences, then try again"
        if num_required_blocks > num_quota_blocks:
            advice = "ask for fewer tokens at a time, or have the quota raised"
        return cls(
            f"{num_required_blocks} blocks are needed, and the tenant holds {num_held_blocks} of a quota of "
            f"{num_quota_blocks}: {advice}",
            {
                "num_required_blocks": num_required_blocks,
                "num_held_blocks": num_held_blocks,
                "num_quota_blocks": num_quota_blocks,
            },
        )


class PrefixNotCached(BlockyardError):
    """A prefix that was to be held is not cached as a whole.

    Figures: ``num_tokens``, ``num_cached_tokens``.
    """

    code = "prefix_not_cached"
    title = "The prefix is not cached"

    @classmethod
    def of(cls, num_tokens: int, num_cached_tokens: int) -> "PrefixNotCached":
        """Of ``num_tokens`` that would have to be held, only the first ``num_cached_tokens`` are cached."""
        return cls(
            f"{num_cached_tokens} of {num_tokens} tokens are cached: have the prefix computed first, or pin "
            "it without hard",
            {"num_tokens": num_tokens, "num_cached_tokens": num_cached_tokens},
        )


class NotOwner(BlockyardError):
    """Blocks that the lease does not hold. Figures: ``block_ids``."""

    code = "not_owner"
    title = "The lease does not hold these blocks"

    @classmethod
    def of(cls, block_ids: Sequence[int]) -> "NotOwner":
        """``block_ids`` are those not held."""
        return cls(
            f"this lease does not hold {_some(block_ids)}; nothing was freed",
            {"block_ids": list(block_ids)},
        )


class DoubleFree(BlockyardError):
    """Blocks named twice, or free already. Figures: ``block_ids``."""

    code = "double_free"
    title = "These blocks are named twice or free already"

    @classmethod
    def of(cls, block_ids: Sequence[int]) -> "DoubleFree":
        """``block_ids`` are those at fault."""
        return cls(
            f"named twice, or free already: {_some(block_ids)}; nothing was freed",
            {"block_ids": list(block_ids)},
        )


class StaleEpoch(BlockyardError):
    """The caller's epoch is not the pool's. Figures: ``epoch``, the pool's."""

    code = "stale_epoch"
    title = "The pool has moved to another epoch"

    @classmethod
    def of(cls, epoch: int) -> "StaleEpoch":
        """``epoch`` is the pool's."""
        return cls(
            f"the pool is in epoch {epoch}: what earlier epochs cached is gone; release the lease, and start "
            "your sequences again under a new one",
            {"epoch": epoch},
        )


class LeaseExpired(BlockyardError):
    """The lease is unknown, was deleted, or ran out; what it held is free."""

    code = "lease_expired"
    title = "The lease has expired"

    @classmethod
    def of(cls, lease_id: str) -> "LeaseExpired":
        """``lease_id`` holds nothing any more."""
        return cls(
            f"lease {lease_id!r} has expired and holds nothing: create a new one, start your sequences again"
        )


class Unauthorized(BlockyardError):
    """The caller has no token, or one that is not known, or not any more."""

    code = "unauthorized"
    title = "A valid token is needed"


class Forbidden(BlockyardError):
    """The caller's token does not allow it."""

    code = "forbidden"
    title = "The token does not allow this"


class BodyTooLarge(BlockyardError):
    """The request's body is over the limit. Figures: ``max_body_bytes``."""

    code = "body_too_large"
    title = "The body is too large"

    @classmethod
    def of(cls, max_body_bytes: int) -> "BodyTooLarge":
        """``max_body_bytes`` is the server's limit."""
        return cls(
            f"the body is over {max_body_bytes} bytes: split the call (--max-body-bytes)",
            {"max_body_bytes": max_body_bytes},
        )


class LimitExceeded(BlockyardError):
    """A bound that one of the server's settings sets. Figures: ``limit``, the setting's name, and ``max``."""

    code = "limit_exceeded"
    title = "A limit of the server is reached"

    @classmethod
    def of(cls, limit: str, most: int, what: str) -> "LimitExceeded":
        """``what`` is a sentence that says what would be over the setting ``limit``, which is ``most``."""
        return cls(f"{what} ({_option(limit)})", {"limit": limit, "max": most})


class HeadTooLarge(BlockyardError):
    """Request line and headers are over the limit. Figures: ``max_head_bytes``."""

    code = "head_too_large"
    title = "The head of the request is too large"

    @classmethod
    def of(cls, max_head_bytes: int) -> "HeadTooLarge":
        """``max_head_bytes`` is the server's limit."""
        return cls(
            f"request line and headers, or what stands behind a body, are over {max_head_bytes} bytes "
            "(--max-head-bytes)",
            {"max_head_bytes": max_head_bytes},
        )


class RequestTimeout(BlockyardError):
    """The request did not arrive in time, or its answer was not there in time.

    The latter alone may have been carried out: a repeat under its idempotency key tells. Figures: ``limit``,
    the setting's name, and ``max``, its value in seconds.
    """

    code = "request_timeout"
    title = "The request took too long"

    @classmethod
    def of(cls, limit: str, max_s: int, what: str) -> "RequestTimeout":
        """``what`` was not there within ``max_s``, as the setting ``limit`` says."""
        return cls(f"{what} within {max_s} s ({_option(limit)})", {"limit": limit, "max": max_s})


class Overloaded(BlockyardError):
    """The server has more to do than it can do soon. Figures: ``retry_after_ms``."""

    code = "overloaded"
    title = "The server is overloaded"


class NotReady(BlockyardError):
    """The server is starting or stopping, or the pool waits for lost workers.

    Figures: ``retry_after_ms``, and ``lost_ranks`` where it waits.
    """

    code = "not_ready"
    title = "Not ready to serve"


def _option(setting: str) -> str:
    """How a server is told its ``setting``, for people."""
    return f"--{setting.replace('_', '-')}"


ERRORS: tuple[type[BlockyardError], ...] = (
    InvalidRequest,
    PoolNotFound,
    PoolElsewhere,
    SequenceNotFound,
    PlanNotFound,
    WorkerNotFound,
    PinNotFound,
    TenantNotFound,
    WorkerReplaced,
    NoEvents,
    NoCluster,
    PoolExists,
    PoolInUse,
    SequenceExistsElsewhere,
    InsufficientBlocks,
    QuotaExceeded,
    PrefixNotCached,
    NotOwner,
    DoubleFree,
    StaleEpoch,
    LeaseExpired,
    Unauthorized,
    Forbidden,
    LimitExceeded,
    BodyTooLarge,
    HeadTooLarge,
    RequestTimeout,
    Overloaded,
    NotReady,
)
"""Every error but the branch of plans, each code once."""


def _some(block_ids: Sequence[int]) -> str:
    """The first few of ``block_ids``, for a sentence."""
    named = ", ".join(str(block) for block in block_ids[:8])
    return (
        f"block {named}" if len(block_ids) == 1 else f"blocks {named}{', ...' if len(block_ids) > 8 else ''}"
    )
