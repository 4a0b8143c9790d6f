"""The application, built by one call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.types import ASGIApp, Receive, Scope, Send

from blockyard.core.errors import NotReady
from blockyard.server import openapi
from blockyard.server.access.authenticator import Authenticator
from blockyard.server.access.principal import PRINCIPAL_KEY
from blockyard.server.access.protection import protect
from blockyard.server.access.token_file import TokenFile
from blockyard.server.charts import find_charts
from blockyard.server.clock import Clock
from blockyard.server.cluster.routes import cluster_routes
from blockyard.server.collector import no_collections
from blockyard.server.connection_timer import ConnectionLimits
from blockyard.server.dashboard import dashboard_routes
from blockyard.server.durable import Durable
from blockyard.server.events.hub import EventHub
from blockyard.server.events.routes import event_routes
from blockyard.server.exception_handlers import exception_handlers
from blockyard.server.expiry import expire_leases
from blockyard.server.gate import Gate
from blockyard.server.guard import Guard
from blockyard.server.hash_limit import HashLimit
from blockyard.server.holders import Holders
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.recovery import RecoveryProgress, recover
from blockyard.server.latency import LatencyWindow
from blockyard.server.metrics import metrics_route
from blockyard.server.pin_routes import pin_routes
from blockyard.server.pool_call_handler import PoolCallHandler, PoolCallHandlers
from blockyard.server.pool_journal import ALL_POOLS, Commit, LocalJournal, PoolJournal, VolatileJournal
from blockyard.server.pools import Pools
from blockyard.server.readiness import Readiness
from blockyard.server.request_figures import BOUNDS_S
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
    from blockyard.server.cluster.cluster import MakeCluster
    from blockyard.server.events.sockets import EventSockets
    from blockyard.server.tracing.tracing import Tracing

log = structlog.get_logger("blockyard.server")

DESCRIPTION = """
Owns KV-cache block pools: which block is free, who holds it, what prefix it caches. Schedulers allocate, free
and look up here; workers hold the tensors and only ever learn block ids.

Errors are `application/problem+json` with a stable `code`. What was refused has changed nothing; whether a
call that ended with `request_timeout` or `not_ready` was done, a repeat under its idempotency key tells.

Block hashes are lower-case hex in JSON and raw bytes in msgpack. Block 0 is the null block: it stands in a
block table where a block was dropped, and is never handed out.

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
        make_cluster: Makes its part in a cluster; None: it stands alone.

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
        make_cluster: "MakeCluster | None",
    ) -> None:
        self.readiness = Readiness()
        self._clock = Clock()
        self._durable = durable
        self._recovery = RecoveryProgress()
        self._on_failure = on_failure
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._journal_figures = JournalFigures()
        if durable is not None or make_cluster is not None:
            self._registry.register(self._journal_figures)
        self._cluster = None if make_cluster is None else make_cluster(self._clock, self._journal_figures)
        self._pool_journal = self._journal_of(durable)
        topic_address = topic_address or f"{settings.host}:{settings.port}"
        self._hub = EventHub(self._pool_journal.commit, sockets, topic_address)
        self._registry.register(self._hub)

        tokens = TokenFile(Path(settings.token_file)) if settings.token_file else None
        self._authenticator = Authenticator(tokens)
        self.streams = Streams(settings.max_subscribers, self._may_go_on)
        self.connection_limits = ConnectionLimits(
            max_connections=settings.max_connections,
            max_head_bytes=settings.max_head_bytes,
            head_timeout_s=settings.head_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
        )
        self._gate = Gate(
            max_requests_in_flight=settings.max_requests_in_flight,
            max_turn_ms=settings.max_turn_ms,
            readiness=self.readiness,
            registry=self._registry,
        )

        make_pools = Pools if tracing is None else tracing.pools
        self.pools = make_pools(settings.max_pools, settings.max_pool_blocks, self._pool_journal, self._hub)
        tenant_limits = TenantLimits(
            max_leases=settings.max_leases_per_tenant,
            max_sequences=settings.max_sequences_per_tenant,
            max_pins=settings.max_pins_per_tenant,
            max_pinned_hashes=settings.max_pinned_hashes_per_tenant,
        )
        self._rooms = WaitingRooms(
            self.pools,
            self._clock,
            tenant_limits=tenant_limits,
            may_go_on=self._may_go_on,
            max_wait_ms=settings.max_wait_ms,
            max_waiting=settings.max_waiting_calls,
            max_waiting_bytes=settings.max_waiting_bytes,
            max_waiting_per_tenant=settings.max_waiting_calls_per_tenant,
        )
        hash_limit = HashLimit(settings.max_hashes_per_call, settings.max_prefixes_per_call)
        handlers = PoolCallHandlers(
            lambda call: PoolCallHandler(
                call,
                self.pools,
                self._rooms,
                self._clock,
                hash_limit=hash_limit,
                tenant_limits=tenant_limits,
            )
        )
        self.api = self._make_api(handlers, hash_limit, has_tokens=tokens is not None)

        app: ASGIApp = self.api
        if self._cluster is not None:
            self.pools.absent = self._cluster.absent
            app = self._cluster.around(app, self.pools, self.streams)
        guard = Guard(
            app,
            self._gate,
            max_body_bytes=settings.max_body_bytes,
            body_timeout_s=settings.body_timeout_s,
            request_timeout_s=settings.request_timeout_s,
            authenticator=self._authenticator,
            journal=self._pool_journal,
            settled=_settled if tracing is None else tracing.settled,
        )
        self._asgi = guard if tracing is None else tracing.around(guard)
        self.short_path: ShortPath | None = None
        if tracing is None:  # else each request is to have its span
            self.short_path = ShortPath(
                handlers.hot(),
                self._gate,
                self._authenticator,
                self._pool_journal,
                self._is_here,
                max_body_bytes=settings.max_body_bytes,
                request_timeout_s=settings.request_timeout_s,
            )

    def _make_api(self, handlers: PoolCallHandlers, hash_limit: HashLimit, *, has_tokens: bool) -> FastAPI:
        """FastAPI with all routes, each held to its rule."""
        cluster = self._cluster
        api = FastAPIOffline(
            title="blockyard",
            version=version("blockyard"),
            description=DESCRIPTION,
            redoc_url=None,
            lifespan=lambda _: self._life(),
            exception_handlers=exception_handlers(hash_limit),
        )
        api.router.routes[:0] = handlers.routes()
        for router in (
            api_routes(self.pools, self._clock, hash_limit),
            plan_routes(self.pools),
            worker_routes(self.pools, self._clock),
            tenant_routes(self.pools, self._clock),
            pin_routes(self.pools, self._clock, Slices()),
            event_routes(self.pools, self._hub, self.streams),
            health_routes(self._check_ready),
            cluster_routes(None if cluster is None else cluster.report),
            self._metrics_route(),
            dashboard_routes(find_charts()),
            self._watch_routes(handlers),
        ):
            api.include_router(router)
        api.openapi = lambda: openapi.describe(api, has_tokens=has_tokens)  # type: ignore[method-assign]
        assert api.openapi_url is not None, "it has its document"
        api.router.routes.insert(0, openapi.openapi_route(api.openapi_url, api.openapi))
        protect(api)
        return api

    def _metrics_route(self) -> APIRouter:
        durable, cluster = self._durable, self._cluster
        journal_bytes: Callable[[], dict[str, int]] | None = None
        if durable is not None:
            journal_bytes = durable.num_bytes
        elif cluster is not None:
            journal_bytes = dict  # it is NATS that has it
        collector = None if cluster is None else cluster.collector
        return metrics_route(self._registry, self.pools, self._clock, journal_bytes, collector)

    def _journal_of(self, durable: Durable | None) -> PoolJournal:
        if self._cluster is not None:
            return self._cluster.journal
        if durable is not None:
            return LocalJournal(durable.journal, self._fail, self._journal_figures)
        return VolatileJournal()

    def _is_here(self, pool: str) -> bool:
        """Whether this server answers for the pool of this name, if anybody does."""
        return self._cluster is None or self.pools.find(pool) is not None

    def _check_ready(self) -> None:
        """Raise NotReady where the server, or the node that it is, may not answer."""
        self.readiness.check()
        if self._cluster is not None:
            self._cluster.check()

    def _watch_routes(self, handlers: PoolCallHandlers) -> APIRouter:
        figures = self._gate.figures
        routes = {name: handler.path_format for name, handler in handlers.hot().items()}
        watched = Watched(
            pools=self.pools,
            clock=self._clock,
            holders=Holders(Slices()),
            latency=LatencyWindow(
                BOUNDS_S, lambda: {name: figures.counts(path) for name, path in routes.items()}
            ),
            settled=self._pool_journal.commit(ALL_POOLS).settled,
            streams=self.streams,
        )
        return watch_routes(watched, Slices())  # its own: figures do not wait for maps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's life."""
        await self._asgi(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _life(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as ending:
            await ending.enter_async_context(_running(self._authenticator.follow(self._review)))
            await ending.enter_async_context(_running(self._start(ending)))
            if self._durable is None and self._cluster is None:
                await self.readiness.wait()
            try:
                yield
            finally:
                self.stop()
                with contextlib.suppress(NotReady):
                    await self._pool_journal.commit(ALL_POOLS).settled()

    async def _start(self, ending: contextlib.AsyncExitStack) -> None:
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
            self._clock.not_before(max((each.pool.now_ms for each in recovered), default=0))
            self.pools.adopt(recovered, self._clock.now_ms())
            await self._pool_journal.commit(ALL_POOLS).settled()
            keeper = self._durable.keeper(self.pools.lines, self._fail, self._journal_figures)
            await ending.enter_async_context(_running(keeper.run()))
        if self._cluster is not None:
            try:
                await ending.enter_async_context(self._cluster.running(self.pools, self._fail))
            except Exception as error:
                log.exception("the cluster cannot be joined")
                self._on_failure(JournalError(f"the cluster cannot be joined: {error!r}"))
                return
        await ending.enter_async_context(_running(expire_leases(self.pools, self._clock)))
        await ending.enter_async_context(_running(self._hub.run()))
        await ending.enter_async_context(_running(self._hub.answer()))
        self.readiness.begin()

    async def leave(self) -> None:
        """Hand the pools over, where there are others to own them: requests are taken meanwhile."""
        if self._cluster is not None and self.readiness.is_ready:
            await self._cluster.leave()

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
        if self._cluster is not None:
            return self._cluster.describe()
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
    make_cluster: "MakeCluster | None" = None,
) -> Server:
    """The server's application: with no pools in it, or with those that it wrote down before."""
    return Server(
        settings,
        durable,
        on_failure,
        sockets=sockets,
        topic_address=topic_address,
        tracing=tracing,
        make_cluster=make_cluster,
    )


async def _settled(commit: Commit) -> None:
    await commit.settled()


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
