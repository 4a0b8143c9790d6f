"""The routes that change a pool, and `lookup`: each reads its raw body, makes one core call, writes bytes.

They are plain Starlette routes, without FastAPI's machinery, since schedulers wait for them; the OpenAPI
document gets them from the same table.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import xxhash
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockyard.core import commands as ask
from blockyard.core import replies as tell
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import LeaseId
from blockyard.core.pool import Pool
from blockyard.server import schemas
from blockyard.server.clock import Clock
from blockyard.server.media import BodyReader, ReplyWriter, wants_msgpack
from blockyard.server.pools import Pools

MAX_KEY_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCall:
    """One route under ``/v1/pools/{pool}``.

    Attributes:
        path: Below the pool's path, with Starlette's parameters.
        body: What it reads.
        reply: What it answers.
        summary: One line for the OpenAPI document.
        command: Makes the pool's command from body and path parameters; None for `lookup`, which is none.
        status: Of success.
        msgpack: Whether bodies may be msgpack.
        method: HTTP method.
    """

    path: str
    body: type[schemas.Body]
    reply: type[tell.Reply]
    summary: str
    command: Callable[[Any, dict[str, Any]], ask.PoolCommand] | None
    status: int = 200
    msgpack: bool = False
    method: str = "POST"


def _own_command(body: Any, _: dict[str, Any]) -> ask.PoolCommand:
    return cast("ask.PoolCommand", body.command())


def _create_lease(body: schemas.CreateLease, _: dict[str, Any]) -> ask.CreateLease:
    return ask.CreateLease(
        lease_id=LeaseId(secrets.token_hex(16)), holder=body.holder, ttl_ms=body.ttl_ms, epoch=body.epoch
    )


def _renew_lease(body: schemas.PoolBody, path: dict[str, Any]) -> ask.RenewLease:
    return ask.RenewLease(lease_id=LeaseId(path["lease_id"]), epoch=body.epoch)


def _delete_lease(body: schemas.PoolBody, path: dict[str, Any]) -> ask.DeleteLease:
    return ask.DeleteLease(lease_id=LeaseId(path["lease_id"]), epoch=body.epoch)


def _reset_prefix_cache(body: schemas.PoolBody, _: dict[str, Any]) -> ask.ResetPrefixCache:
    return ask.ResetPrefixCache(epoch=body.epoch)


POOL_CALLS = (
    PoolCall(
        path="/step",
        body=schemas.StepBody,
        reply=tell.Stepped,
        summary="One scheduler step: commit, free, extend and admit many sequences as one unit.",
        command=_own_command,
        msgpack=True,
    ),
    PoolCall(
        path="/allocate",
        body=schemas.AllocateBody,
        reply=tell.Allocated,
        summary="Admit a sequence with its cached prefix, or extend it.",
        command=_own_command,
        msgpack=True,
    ),
    PoolCall(
        path="/commit",
        body=schemas.CommitBody,
        reply=tell.Committed,
        summary="Say that tokens' KV is written; full blocks up to there become hits.",
        command=_own_command,
        msgpack=True,
    ),
    PoolCall(
        path="/free",
        body=schemas.FreeBody,
        reply=tell.Freed,
        summary="Free whole sequences.",
        command=_own_command,
        msgpack=True,
    ),
    PoolCall(
        path="/lookup",
        body=schemas.LookupBody,
        reply=tell.Found,
        summary="Find the longest cached prefix; changes nothing.",
        command=None,
        msgpack=True,
    ),
    PoolCall(
        path="/leases",
        body=schemas.CreateLease,
        reply=tell.LeaseGranted,
        summary="Open a lease.",
        command=_create_lease,
        status=201,
    ),
    PoolCall(
        path="/leases/{lease_id}/renew",
        body=schemas.PoolBody,
        reply=tell.LeaseGranted,
        summary="Start a lease's time anew.",
        command=_renew_lease,
    ),
    PoolCall(
        path="/leases/{lease_id}",
        body=schemas.PoolBody,
        reply=tell.LeaseReleased,
        summary="End a lease and free all it holds.",
        command=_delete_lease,
        method="DELETE",
    ),
    PoolCall(
        path="/blocks/allocate",
        body=schemas.AllocateBlocksBody,
        reply=tell.BlocksAllocated,
        summary="Hold blocks without a sequence.",
        command=_own_command,
    ),
    PoolCall(
        path="/blocks/free",
        body=schemas.FreeBlocksBody,
        reply=tell.BlocksFreed,
        summary="Give such blocks back: all, or none if one is not held.",
        command=_own_command,
    ),
    PoolCall(
        path="/reset_prefix_cache",
        body=schemas.PoolBody,
        reply=tell.CacheReset,
        summary="Forget every cached prefix, if no block is held.",
        command=_reset_prefix_cache,
    ),
)


def pool_call_routes(pools: Pools, clock: Clock) -> list[Route]:
    """The routes of `POOL_CALLS` over ``pools``."""
    return [
        Route(f"/v1/pools/{{pool}}{call.path}", _endpoint(call, pools, clock), methods=[call.method])
        for call in POOL_CALLS
    ]


def _endpoint(call: PoolCall, pools: Pools, clock: Clock) -> Callable[[Request], Awaitable[Response]]:
    reader: BodyReader[schemas.Body] = BodyReader(call.body, takes_msgpack=call.msgpack)
    writer: ReplyWriter[tell.Reply] = ReplyWriter(call.reply)
    body_is_optional = call.body is schemas.PoolBody
    make_command = call.command

    async def endpoint(request: Request) -> Response:
        headers = request.headers
        raw = await request.body()
        body = reader.read(raw or b"{}" if body_is_optional else raw, headers.get("content-type"))
        pool = pools.get(request.path_params["pool"])
        reply: tell.Reply
        if make_command is None:
            reply = _lookup(pool, cast("schemas.LookupBody", body))
        else:
            command = make_command(body, request.path_params)
            key = headers.get("idempotency-key")
            once = command if key is None else _once(key, request.scope["path"], raw, command)
            reply = pool.apply(once, clock.now_ms())
        return writer.write(reply, msgpack=call.msgpack and wants_msgpack(headers), status=call.status)

    endpoint.__name__ = call.path.strip("/").replace("/", "_")
    return endpoint


def _once(key: str, path: str, raw: bytes, command: ask.PoolCommand) -> ask.Idempotent:
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidRequest.of("Idempotency-Key", f"must be 1 to {MAX_KEY_LENGTH} characters")
    fingerprint = xxhash.xxh3_128_digest(path.encode() + b"\n" + raw)
    return ask.Idempotent(key=key, fingerprint=fingerprint, command=command)


def _lookup(pool: Pool, body: schemas.LookupBody) -> tell.Found:
    pool.check_epoch(body.epoch)
    return pool.lookup(
        num_tokens=body.num_tokens,
        block_hashes=body.block_hashes,
        token_ids=body.token_ids,
        extras=body.extras(),
    )
