"""The calls that change a pool, and `lookup`: what each reads, answers, and asks of the core.

One table, from which come the routes that serve them and their part of the OpenAPI document.
"""

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from blockyard.core import commands as ask
from blockyard.core import replies as tell
from blockyard.core.errors import (
    BlockyardError,
    DoubleFree,
    InsufficientBlocks,
    LeaseExpired,
    LimitExceeded,
    NotOwner,
    PinNotFound,
    PoolNotFound,
    PrefixNotCached,
    QuotaExceeded,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
)
from blockyard.core.ids import LeaseId, PinId, TenantId
from blockyard.core.pool import Pool
from blockyard.server import schemas
from blockyard.server.pin_bodies import CreatePinBody, RenewPinBody
from blockyard.server.prefix_bodies import PrefixesBody
from blockyard.server.prefix_look import look_for_prefixes

MakeCommand: TypeAlias = Callable[[Any, Mapping[str, Any], TenantId], ask.PoolCommand]
"""From a body, the path's variable parts by their names, and whose the command is."""

MakeLook: TypeAlias = Callable[[Pool, Any, TenantId], Generator[None, None, tell.Reply]]
"""From a pool, a body and whose the call is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCall:
    """One route under ``/v1/pools/{pool}``.

    Attributes:
        path: Below the pool's path, with Starlette's parameters.
        body: What it reads.
        reply: What it answers.
        summary: One line for the OpenAPI document.
        command: Makes the pool's command; None for those that are none.
        look: Of those, makes a look that is taken in slices; None for `lookup`, which is one slice.
        status: Of success.
        is_hot: Whether schedulers wait for it: then bodies may be msgpack.
        method: HTTP method.
        refusals: Errors that it knows, beside those of every route.
    """

    path: str
    body: type[schemas.PoolBody]
    reply: type[tell.Reply]
    summary: str
    command: MakeCommand | None
    look: MakeLook | None = None
    status: int = 200
    is_hot: bool = False
    method: str = "POST"
    refusals: tuple[type[BlockyardError], ...]

    @property
    def body_is_optional(self) -> bool:
        """Whether nothing need be said in it."""
        return not any(field.is_required() for field in self.body.model_fields.values())


OF_A_POOL = (PoolNotFound, StaleEpoch)
OF_A_PIN = (*OF_A_POOL, PinNotFound)
UNDER_A_LEASE = (*OF_A_POOL, LeaseExpired)


def _own_command(body: Any, _: Mapping[str, Any], tenant: TenantId) -> ask.PoolCommand:
    return cast("ask.PoolCommand", body.command(tenant))


def _create_lease(body: schemas.CreateLease, _: Mapping[str, Any], tenant: TenantId) -> ask.CreateLease:
    return ask.CreateLease(
        tenant=tenant,
        lease_id=LeaseId(secrets.token_hex(16)),
        holder=body.holder,
        ttl_ms=body.ttl_ms,
        epoch=body.epoch,
    )


def _renew_lease(body: schemas.PoolBody, path: Mapping[str, Any], tenant: TenantId) -> ask.RenewLease:
    return ask.RenewLease(tenant=tenant, lease_id=LeaseId(path["lease_id"]), epoch=body.epoch)


def _delete_lease(body: schemas.PoolBody, path: Mapping[str, Any], tenant: TenantId) -> ask.DeleteLease:
    return ask.DeleteLease(tenant=tenant, lease_id=LeaseId(path["lease_id"]), epoch=body.epoch)


def _reset_prefix_cache(
    body: schemas.PoolBody, _: Mapping[str, Any], tenant: TenantId
) -> ask.ResetPrefixCache:
    return ask.ResetPrefixCache(tenant=tenant, epoch=body.epoch)


def _create_pin(body: CreatePinBody, _: Mapping[str, Any], tenant: TenantId) -> ask.CreatePin:
    return body.command(PinId(secrets.token_hex(16)), tenant)


def _renew_pin(body: RenewPinBody, path: Mapping[str, Any], tenant: TenantId) -> ask.RenewPin:
    return ask.RenewPin(tenant=tenant, pin_id=PinId(path["pin_id"]), ttl_ms=body.ttl_ms, epoch=body.epoch)


def _delete_pin(body: schemas.PoolBody, path: Mapping[str, Any], tenant: TenantId) -> ask.DeletePin:
    return ask.DeletePin(tenant=tenant, pin_id=PinId(path["pin_id"]), epoch=body.epoch)


POOL_CALLS = (
    PoolCall(
        path="/step",
        body=schemas.StepBody,
        reply=tell.Stepped,
        summary="One scheduler step: commit, free, extend and admit many sequences as one unit.",
        command=_own_command,
        is_hot=True,
        refusals=(*UNDER_A_LEASE, SequenceNotFound, LimitExceeded),
    ),
    PoolCall(
        path="/allocate",
        body=schemas.AllocateBody,
        reply=tell.Allocated,
        summary="Admit a sequence with its cached prefix, or extend it.",
        command=_own_command,
        is_hot=True,
        refusals=(
            *UNDER_A_LEASE,
            SequenceExistsElsewhere,
            InsufficientBlocks,
            QuotaExceeded,
            LimitExceeded,
        ),
    ),
    PoolCall(
        path="/commit",
        body=schemas.CommitBody,
        reply=tell.Committed,
        summary="Say that tokens' KV is written; full blocks up to there become hits.",
        command=_own_command,
        is_hot=True,
        refusals=(*UNDER_A_LEASE, SequenceNotFound, LimitExceeded),
    ),
    PoolCall(
        path="/free",
        body=schemas.FreeBody,
        reply=tell.Freed,
        summary="Free whole sequences.",
        command=_own_command,
        is_hot=True,
        refusals=UNDER_A_LEASE,
    ),
    PoolCall(
        path="/fork",
        body=schemas.ForkBody,
        reply=tell.Forked,
        summary="Begin sequences that go on from where another one stands, and share its blocks.",
        command=_own_command,
        refusals=(
            *UNDER_A_LEASE,
            SequenceNotFound,
            SequenceExistsElsewhere,
            InsufficientBlocks,
            QuotaExceeded,
            LimitExceeded,
        ),
    ),
    PoolCall(
        path="/lookup",
        body=schemas.LookupBody,
        reply=tell.Found,
        summary="Find the longest cached prefix; changes nothing.",
        command=None,
        is_hot=True,
        refusals=(*OF_A_POOL, LimitExceeded),
    ),
    PoolCall(
        path="/prefixes",
        body=PrefixesBody,
        reply=tell.PrefixesFound,
        summary="Find out how much of each of many prefixes is cached, all of their full blocks; changes "
        "nothing.",
        command=None,
        look=look_for_prefixes,
        refusals=(*OF_A_POOL, LimitExceeded),
    ),
    PoolCall(
        path="/pins",
        body=CreatePinBody,
        reply=tell.Pinned,
        summary="Keep a prefix: have its blocks evicted last, or hold them.",
        command=_create_pin,
        status=201,
        refusals=(*OF_A_POOL, PrefixNotCached, InsufficientBlocks, QuotaExceeded, LimitExceeded),
    ),
    PoolCall(
        path="/pins/{pin_id}/renew",
        body=RenewPinBody,
        reply=tell.Pinned,
        summary="Start a pin's time anew.",
        command=_renew_pin,
        refusals=OF_A_PIN,
    ),
    PoolCall(
        path="/pins/{pin_id}",
        body=schemas.PoolBody,
        reply=tell.Unpinned,
        summary="End a pin.",
        command=_delete_pin,
        method="DELETE",
        refusals=OF_A_PIN,
    ),
    PoolCall(
        path="/leases",
        body=schemas.CreateLease,
        reply=tell.LeaseGranted,
        summary="Open a lease.",
        command=_create_lease,
        status=201,
        refusals=(*OF_A_POOL, LimitExceeded),
    ),
    PoolCall(
        path="/leases/{lease_id}/renew",
        body=schemas.PoolBody,
        reply=tell.LeaseGranted,
        summary="Start a lease's time anew.",
        command=_renew_lease,
        refusals=UNDER_A_LEASE,
    ),
    PoolCall(
        path="/leases/{lease_id}",
        body=schemas.PoolBody,
        reply=tell.LeaseReleased,
        summary="End a lease and free all it holds.",
        command=_delete_lease,
        method="DELETE",
        refusals=UNDER_A_LEASE,
    ),
    PoolCall(
        path="/blocks/allocate",
        body=schemas.AllocateBlocksBody,
        reply=tell.BlocksAllocated,
        summary="Hold blocks without a sequence.",
        command=_own_command,
        refusals=(*UNDER_A_LEASE, InsufficientBlocks, QuotaExceeded, LimitExceeded),
    ),
    PoolCall(
        path="/blocks/free",
        body=schemas.FreeBlocksBody,
        reply=tell.BlocksFreed,
        summary="Give such blocks back: all, or none if one is not held.",
        command=_own_command,
        refusals=(*UNDER_A_LEASE, NotOwner, DoubleFree),
    ),
    PoolCall(
        path="/reset_prefix_cache",
        body=schemas.PoolBody,
        reply=tell.CacheReset,
        summary="Forget every cached prefix, if no block is held.",
        command=_reset_prefix_cache,
        refusals=OF_A_POOL,
    ),
)
