"""Serving the pool calls: each reads its raw body, makes one core call, writes bytes.

They are plain Starlette routes, without FastAPI's machinery. The hot ones, which schedulers wait for, have a
shorter path to here as well: see `blockyard.server.short_path`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockyard.core.errors import InvalidRequest, PoolNotFound
from blockyard.core.ids import TenantId
from blockyard.core.pool import Pool
from blockyard.core.replies import Found, LeaseGranted, Pinned, Reply
from blockyard.server.access.principal import PRINCIPAL_KEY
from blockyard.server.clock import Clock
from blockyard.server.hash_limit import HashLimit
from blockyard.server.idempotency_key import once
from blockyard.server.media import Answer, BodyReader, Headers, ReplyWriter, wants_msgpack
from blockyard.server.pool_calls import POOL_CALLS, MakeLook, PoolCall
from blockyard.server.pools import Pools
from blockyard.server.schemas import LookupBody, PoolBody, WaitingBody
from blockyard.server.slices import Slices
from blockyard.server.tenant_limits import TenantLimits
from blockyard.server.waiting_rooms import HasToWait, WaitingRooms

POOLS_PATH = "/v1/pools/"


class PoolCallHandler:
    """Answers one kind of call.

    Args:
        call: Which.
        pools: The server's pools.
        rooms: Where calls wait for blocks of them.
        clock: The time that commands are given.
        hash_limit: Bounds what a body may hold.
        tenant_limits: Bound what a tenant may have.

    Attributes:
        path_format: Its path's template.
    """

    __slots__ = (
        "_body_is_optional",
        "_call",
        "_clock",
        "_hash_limit",
        "_pools",
        "_reader",
        "_rooms",
        "_slices",
        "_tenant_limits",
        "_writer",
        "path_format",
    )

    def __init__(
        self,
        call: PoolCall,
        pools: Pools,
        rooms: WaitingRooms,
        clock: Clock,
        *,
        hash_limit: HashLimit,
        tenant_limits: TenantLimits,
    ) -> None:
        self.path_format = f"{POOLS_PATH}{{pool}}{call.path}"
        self._call = call
        self._pools = pools
        self._rooms = rooms
        self._clock = clock
        self._hash_limit = hash_limit
        self._tenant_limits = tenant_limits
        self._slices = Slices()
        self._reader: BodyReader[PoolBody] = BodyReader(
            call.body, takes_msgpack=call.is_hot, check_faults=hash_limit.check_faults
        )
        self._writer: ReplyWriter[Reply] = ReplyWriter(call.reply)
        self._body_is_optional = call.body_is_optional

    async def endpoint(self, request: Request) -> Response:
        """The call as a Starlette endpoint."""
        raw = await request.body()
        scope = request.scope
        scope["route"] = self  # requests are counted by its template
        if scope["query_string"]:
            raise InvalidRequest.of("query", "this route takes no query parameters")
        tenant = scope[PRINCIPAL_KEY].tenant
        headers = dict(scope["headers"])
        if self._call.look is not None:
            return (
                await self._look(self._call.look, request.path_params["pool"], raw, headers, tenant)
            ).response()
        try:
            answer = self.answer(scope["path"], request.path_params, headers, raw, tenant)
        except HasToWait as late:
            reply = await self._rooms.wait(late, scope, request.receive, len(raw))
            answer = self._written(reply, headers)
        return answer.response()

    def answer(
        self, path: str, path_params: Mapping[str, Any], headers: Headers, raw: bytes, tenant: TenantId
    ) -> Answer:
        """Do the call that is in ``raw``. That its caller may make it was found out before.

        Args:
            path: Of the request.
            path_params: Its variable parts by their names.
            headers: By their lower-case names.
            raw: Its body.
            tenant: Whose call it is.

        Raises:
            BlockyardError: It is refused.
            HasToWait: It may wait for blocks, and has to.
        """
        call = self._call
        body = self._read(raw, headers)
        name = path_params["pool"]
        reply: Reply
        if call.command is None:
            reply = _lookup(self._pools.get(name), cast("LookupBody", body), tenant)
        else:
            asked = call.command(body, path_params, tenant)
            command = once(headers, path, raw, asked) if call.method == "POST" else asked
            self._tenant_limits.check(self._pools.get(name), command)
            if isinstance(body, WaitingBody) and body.wait_ms:
                reply = self._rooms.apply_or_wait(name, command, body.wait_ms)
            else:
                reply = self._pools.apply(name, command, self._clock.now_ms())
            if isinstance(reply, (LeaseGranted, Pinned)):
                reply = replace(reply, expires_at_ms=self._clock.real_ms(reply.expires_at_ms))
        return self._written(reply, headers)

    async def _look(
        self, look: MakeLook, name: str, raw: bytes, headers: Headers, tenant: TenantId
    ) -> Answer:
        """Take a look at the pool of this name, in slices."""
        body = self._read(raw, headers)
        self._hash_limit.check_prefixes(body)
        pool = self._pools.get(name)
        reply, _ = await self._slices.run(look(pool, body, tenant))
        if self._pools.find(name) is not pool:
            raise PoolNotFound(f"pool {name!r} was deleted in the meantime")
        return self._written(reply, headers)

    def _read(self, raw: bytes, headers: Headers) -> PoolBody:
        if not raw and self._body_is_optional:
            raw = b"{}"
        body = self._reader.read(raw, headers)
        if not self._hash_limit.allows_any_of(len(raw)):  # most need not be counted
            self._hash_limit.check(body)
        return body

    def _written(self, reply: Reply, headers: Headers) -> Answer:
        call = self._call
        return self._writer.write(reply, msgpack=call.is_hot and wants_msgpack(headers), status=call.status)


class PoolCallHandlers:
    """A handler for each of `POOL_CALLS`, which ``make`` makes."""

    def __init__(self, make: Callable[[PoolCall], PoolCallHandler]) -> None:
        self._by_path = {call.path: make(call) for call in POOL_CALLS}

    def routes(self) -> list[Route]:
        """All of them as routes."""
        return [
            Route(handler.path_format, handler.endpoint, methods=[call.method])
            for call, handler in zip(POOL_CALLS, self._by_path.values(), strict=True)
        ]

    def hot(self) -> dict[str, PoolCallHandler]:
        """Those that schedulers wait for, by the last part of their path."""
        return {call.path[1:]: self._by_path[call.path] for call in POOL_CALLS if call.is_hot}


def _lookup(pool: Pool, body: LookupBody, tenant: TenantId) -> Found:
    pool.check_epoch(body.epoch)
    return pool.lookup(
        num_tokens=body.num_tokens,
        block_hashes=body.block_hashes,
        token_ids=body.token_ids,
        extras=body.extras(),
        tenant=tenant,
        tenant_only=body.tenant_only,
    )
