"""The application, built by one call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from http import HTTPMethod, HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from blockyard.core.errors import BlockyardError, InvalidRequest, LimitExceeded, NotReady
from blockyard.server import openapi
from blockyard.server.access.authenticator import Authenticator
from blockyard.server.access.principal import PRINCIPAL_KEY
from blockyard.server.access.protection import protect
from blockyard.server.access.token_file import TokenFile
from blockyard.server.charts import find_charts
from blockyard.server.clock import Clock
from blockyard.server.collector import no_collections
from blockyard.server.connection_timer import ConnectionLimits
from blockyard.server.dashboard import dashboard_routes
from blockyard.server.durable import Durable
from blockyard.server.events.hub import EventHub
from blockyard.server.events.routes import event_routes
from blockyard.server.gate import Gate
from blockyard.server.guard import Guard
from blockyard.server.hash_limit import HashLimit
from blockyard.server.holders import Holders
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.recovery import RecoveryProgress, recover
from blockyard.server.latency import LatencyWindow
from blockyard.server.media import render_error, render_problem
from blockyard.server.metrics import metrics_route
from blockyard.server.pool_call_handler import PoolCallHandlers
from blockyard.server.pool_journal import PoolJournal
from blockyard.server.pools import Pools
from blockyard.server.problems import http_problem, internal_error, invalid_fields
from blockyard.server.readiness import Readiness
from blockyard.server.request_figures import BOUNDS_S, RequestFigures
from blockyard.server.routes import api_routes, health_routes, plan_routes
from blockyard.server.settings import Settings
from blockyard.server.short_path import ShortPath
from blockyard.server.slices import Slices
from blockyard.server.sse import Streams
from blockyard.server.tenant_limits import TenantLimits
from blockyard.server.tenant_routes import tenant_routes
from blockyard.server.waiting_rooms import WaitingRooms
from blockyard.server.watch import Watched
from blockyard.server.watch_routes import watch_routes
from blockyard.server.worker_routes import worker_routes

if TYPE_CHECKING:  # extras
    from blockyard.server.events.sockets import EventSockets
    from blockyard.server.tracing.tracing import Tracing

log = structlog.get_logger("blockyard.server")

EXPIRY_TICK_S = 0.02
"""How often run-out leases are looked for."""

EXPIRY_RETRY_S = 0.1
"""The pause after a failure: short enough for the clock, long enough for the log."""

DESCRIPTION = """
Owns KV-cache block pools: which block is free, who holds it, what prefix it caches. Schedulers allocate, free
and look up here; workers hold the tensors and only ever learn block ids.

Errors are `application/problem+json` with a stable `code`, and have changed nothing. Block hashes are
lower-case hex in JSON and raw bytes in msgpack. Block 0 is the null block: it stands in a block table where a
block was dropped, and is never handed out.

A server with tokens asks for one, `Authorization: Bearer byd_...`, with the scope that the operation names.
`allocate` and `work` imply `read`, and `admin` implies all. A pool that the token is not for is not found.
"""


class Server:
    """The whole server as one ASGI application: the guard around FastAPI, and beside it the short path.

    Args:
        settings: Its own.
        durable: What it writes down, and where; None: nothing.
        on_failure: Called if what it has done cannot be written down: the process has to end.
        sockets: Where events go beside server-sent ones; None: nowhere.
        topic_address: Host and port for the topics of events; default: those of ``settings``.
        tracing: Traces its requests; None: nothing does.

    Raises:
        TokenFileError: The file of tokens cannot be read.

    Attributes:
        api: FastAPI's part, which holds all routes.
        pools: The pools that it owns; those of the journal, once it is ready.
        readiness: Whether it takes requests.
        streams: Its open streams of server-sent events.
        connection_limits: Of the connections to it, for the HTTP protocol.
        short_path: Of its hot calls, for the HTTP protocol; None: they go through ASGI like all else.
    """

    def __init__(
        self,
        settings: Settings,
        durable: Durable | None,
        on_failure: Callable[[JournalError], None],
        *,
        sockets: "EventSockets | None",
        topic_address: str | None,
        tracing: "Tracing | None",
    ) -> None:
        clock = Clock()
        self.readiness = Readiness()
        self._authenticator = Authenticator(
            TokenFile(Path(settings.token_file)) if settings.token_file else None
        )
        self.streams = Streams(settings.max_subscribers, self._may_go_on)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._durable = durable
        self._recovery = RecoveryProgress()
        self._on_failure = on_failure
        self._journal_figures = JournalFigures()
        if durable is not None:
            registry.register(self._journal_figures)
        journal = durable.journal if durable else None
        self._pool_journal = PoolJournal(journal, self._fail, self._journal_figures)
        topic_address = topic_address or f"{settings.host}:{settings.port}"
        self._hub = EventHub(self._pool_journal.settled, sockets, topic_address)
        registry.register(self._hub)
        self.connection_limits = ConnectionLimits(
            max_connections=settings.max_connections,
            max_head_bytes=settings.max_head_bytes,
            head_timeout_s=settings.head_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
        )
        make_pools = Pools if tracing is None else tracing.pools
        self.pools = make_pools(settings.max_pools, settings.max_pool_blocks, self._pool_journal, self._hub)
        hash_limit = HashLimit(settings.max_hashes_per_call)
        tenant_limits = TenantLimits(settings.max_leases_per_tenant, settings.max_sequences_per_tenant)
        self._rooms = WaitingRooms(
            self.pools,
            clock,
            tenant_limits=tenant_limits,
            may_go_on=self._may_go_on,
            max_wait_ms=settings.max_wait_ms,
            max_waiting=settings.max_waiting_calls,
            max_waiting_per_tenant=settings.max_waiting_calls_per_tenant,
        )
        handlers = PoolCallHandlers(
            self.pools, self._rooms, clock, hash_limit=hash_limit, tenant_limits=tenant_limits
        )
        self.api = FastAPIOffline(
            title="blockyard",
            version=version("blockyard"),
            description=DESCRIPTION,
            redoc_url=None,
            lifespan=lambda _: self._life(clock),
            exception_handlers={
                BlockyardError: _refused,
                RequestValidationError: _invalid(hash_limit),
                HTTPException: _http_error,
                Exception: _failed,
            },
        )
        self.api.router.routes[:0] = handlers.routes()
        self.api.include_router(api_routes(self.pools, clock, hash_limit))
        self.api.include_router(plan_routes(self.pools))
        self.api.include_router(worker_routes(self.pools, clock))
        self.api.include_router(tenant_routes(self.pools, clock))
        self.api.include_router(event_routes(self.pools, self._hub, self.streams))
        self.api.include_router(health_routes(self.readiness))
        self.api.include_router(metrics_route(registry, self.pools, clock, durable))
        self.api.include_router(dashboard_routes(find_charts()))
        self.api.openapi = lambda: openapi.describe(  # type: ignore[method-assign]
            self.api, has_tokens=bool(settings.token_file)
        )
        assert self.api.openapi_url is not None, "it has its document"
        self.api.router.routes.insert(0, openapi.openapi_route(self.api.openapi_url, self.api.openapi))
        gate = Gate(
            max_requests_in_flight=settings.max_requests_in_flight,
            max_turn_ms=settings.max_turn_ms,
            readiness=self.readiness,
            registry=registry,
        )
        settled = self._pool_journal.settled
        guard = Guard(
            self.api,
            gate,
            max_body_bytes=settings.max_body_bytes,
            body_timeout_s=settings.body_timeout_s,
            authenticator=self._authenticator,
            request_timeout_s=settings.request_timeout_s,
            settled=settled if tracing is None else tracing.settled(self._pool_journal),
        )
        self.short_path: ShortPath | None = None
        if tracing is None:  # else each request is to have its span
            self.short_path = ShortPath(
                handlers.hot(),
                gate,
                self._authenticator,
                self._pool_journal,
                max_body_bytes=settings.max_body_bytes,
                request_timeout_s=settings.request_timeout_s,
            )
        self.api.include_router(self._watch_routes(handlers, clock, gate.figures))
        protect(self.api)
        self._asgi = guard if tracing is None else tracing.around(guard)

    def _watch_routes(self, handlers: PoolCallHandlers, clock: Clock, figures: RequestFigures) -> APIRouter:
        routes = {name: handler.path_format for name, handler in handlers.hot().items()}
        watched = Watched(
            pools=self.pools,
            clock=clock,
            holders=Holders(Slices()),
            latency=LatencyWindow(
                BOUNDS_S, lambda: {name: figures.counts(path) for name, path in routes.items()}
            ),
            settled=self._pool_journal.settled,
            streams=self.streams,
        )
        return watch_routes(watched, Slices())  # its own: figures do not wait for maps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's life."""
        await self._asgi(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _life(self, clock: Clock) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as ending:
            await ending.enter_async_context(_running(self._authenticator.follow(self._review)))
            await ending.enter_async_context(_running(self._start(clock, ending)))
            if self._durable is None:
                await self.readiness.wait()
            try:
                yield
            finally:
                self.stop()
                with contextlib.suppress(NotReady):
                    await self._pool_journal.settled()

    async def _start(self, clock: Clock, ending: contextlib.AsyncExitStack) -> None:
        """Bring back what was written down, if anything was; then be ready, and do what goes on for ever."""
        if self._durable is not None:
            progress = self._recovery
            self.readiness.progress = progress.figures
            ending.callback(progress.cancel)
            try:
                with no_collections():
                    recovered = await asyncio.to_thread(recover, self._durable.journal, progress)
            except JournalError as error:
                self._on_failure(error)
                return
            except Exception as error:
                log.exception("the journal could not be replayed")
                self._on_failure(JournalError(f"the journal could not be replayed: {error!r}"))
                return
            clock.not_before(max((each.pool.now_ms for each in recovered), default=0))
            self.pools.adopt(recovered, clock.now_ms())
            await self._pool_journal.settled()
            keeper = self._durable.keeper(self.pools.lines, self._pool_journal.fail, self._journal_figures)
            await ending.enter_async_context(_running(keeper.run()))
        await ending.enter_async_context(_running(_expire_leases(self.pools, clock)))
        await ending.enter_async_context(_running(self._hub.run()))
        await ending.enter_async_context(_running(self._hub.answer()))
        self.readiness.begin()

    def stop(self) -> None:
        """Take no more requests, and end those that would go on for long."""
        self.readiness.end()
        self.end_long_requests()

    def _may_go_on(self, scope: Scope) -> bool:
        """Whether whoever asked in ``scope`` is still known."""
        return self._authenticator.knows(scope[PRINCIPAL_KEY])

    def _review(self) -> None:
        """Tokens have changed: end what those do not go on with who are not known any more."""
        self.streams.review()
        self._rooms.review()

    def end_long_requests(self) -> None:
        """End the streams, which would go on for ever, and tell those that wait for blocks to try again."""
        self.streams.stop()
        self._rooms.stop()

    def describe(self) -> dict[str, Any]:
        """What it goes on from, for its log."""
        if self._durable is None:
            return {"data_dir": None}
        figures = self._recovery.figures()
        return {"data_dir": str(self._durable.path), "num_pools": len(self.pools), **figures}

    def _fail(self, error: JournalError) -> None:
        """Nothing may be told any more."""
        self.readiness.end()
        self._on_failure(error)


def create_app(
    settings: Settings,
    durable: Durable | None = None,
    on_failure: Callable[[JournalError], None] = lambda _: None,
    *,
    sockets: "EventSockets | None" = None,
    topic_address: str | None = None,
    tracing: "Tracing | None" = None,
) -> Server:
    """The server's application: with no pools in it, or with those that it wrote down before."""
    return Server(
        settings, durable, on_failure, sockets=sockets, topic_address=topic_address, tracing=tracing
    )


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """``work`` as a task, from here to the end of the block, where it is cancelled."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _expire_leases(pools: Pools, clock: Clock) -> None:
    """Look for run-out leases for ever: whatever goes wrong in one turn, time goes on in the next."""
    while True:
        await asyncio.sleep(EXPIRY_TICK_S)
        clock.tick()
        try:
            expired = pools.expire(clock.now_ms())
        except Exception:
            log.exception("leases could not be expired")
            await asyncio.sleep(EXPIRY_RETRY_S)
            continue
        for name, reply in expired:
            log.warning(
                "leases expired",
                pool=name,
                lease_ids=reply.lease_ids,
                num_freed_sequences=reply.num_freed_sequences,
                num_freed_blocks=reply.num_freed_blocks,
            )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BlockyardError)
    return render_error(error).response()


def _invalid(hash_limit: HashLimit) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        try:
            hash_limit.check_faults(error.errors())
        except LimitExceeded as exceeded:
            return render_error(exceeded).response()
        found = [{**found, "loc": found["loc"][1:]} for found in error.errors()]
        return render_error(invalid_fields(found)).response()

    return invalid


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST:  # FastAPI could not read the body at all
        return render_error(InvalidRequest.of("body", "is not JSON in UTF-8")).response()
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = _allowed(request)
    return render_problem(http_problem(error.status_code, str(error.detail)), headers).response()


def _allowed(request: Request) -> str:
    """The methods of a request's path: several routes share it, and the first one knows its own alone."""
    found = [
        method.value
        for method in HTTPMethod
        if any(
            route.matches({**request.scope, "method": method.value})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return ", ".join(sorted(found))


async def _failed(_: Request, __: Exception) -> Response:
    return render_problem(internal_error()).response()
