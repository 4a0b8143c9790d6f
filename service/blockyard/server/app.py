"""The application, built by one call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from blockyard.core.errors import BlockyardError
from blockyard.server import openapi
from blockyard.server.clock import Clock
from blockyard.server.guard import Guard, not_ready
from blockyard.server.media import render_error, render_problem
from blockyard.server.pool_calls import pool_call_routes
from blockyard.server.pools import Pools
from blockyard.server.problems import http_problem, invalid_fields
from blockyard.server.routes import Health, api_routes
from blockyard.server.settings import Settings

log = structlog.get_logger("blockyard.server")

EXPIRY_TICK_S = 0.02
"""How often run-out leases are looked for."""

DESCRIPTION = """
Owns KV-cache block pools: which block is free, who holds it, what prefix it caches. Schedulers allocate, free
and look up here; workers hold the tensors and only ever learn block ids.

Errors are `application/problem+json` with a stable `code`, and have changed nothing. Block hashes are
lower-case hex in JSON and raw bytes in msgpack. Block 0 is the null block: it stands in a block table where a
block was dropped, and is never handed out.
"""


class State:
    """Whether the server takes requests: from the end of its start to the beginning of its stop."""

    def __init__(self) -> None:
        self.is_ready = False


def create_app(settings: Settings) -> FastAPI:
    """The server's application with no pools in it."""
    clock = Clock()
    state = State()
    pools = Pools(settings.max_pools, settings.max_pool_blocks)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        expiry = asyncio.create_task(_expire_leases(pools, clock))
        state.is_ready = True
        try:
            yield
        finally:
            state.is_ready = False
            expiry.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await expiry

    app = FastAPIOffline(
        title="blockyard",
        version=version("blockyard"),
        description=DESCRIPTION,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers={
            BlockyardError: _refused,
            RequestValidationError: _invalid,
            HTTPException: _http_error,
            Exception: _failed,
        },
    )
    app.state.server = state
    app.state.pools = pools
    app.add_middleware(
        Guard,
        max_body_bytes=settings.max_body_bytes,
        max_requests_in_flight=settings.max_requests_in_flight,
        is_ready=lambda: state.is_ready,
    )
    # The hot routes come first: routes are tried in order.
    app.router.routes[:0] = pool_call_routes(pools, clock)
    app.include_router(api_routes(pools))

    @app.get("/healthz", tags=["watching"], summary="The process answers.")
    async def healthz() -> Health:
        return Health()

    @app.get("/readyz", tags=["watching"], summary="The server takes requests.")
    async def readyz() -> Health:
        if not state.is_ready:
            raise not_ready()
        return Health()

    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]
    return app


async def _expire_leases(pools: Pools, clock: Clock) -> None:
    while True:
        await asyncio.sleep(EXPIRY_TICK_S)
        for name, expired in pools.expire(clock.now_ms()):
            log.warning(
                "leases expired",
                pool=name,
                lease_ids=list(expired.lease_ids),
                num_freed_sequences=expired.num_freed_sequences,
                num_freed_blocks=expired.num_freed_blocks,
            )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BlockyardError)
    return render_error(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return render_error(invalid_fields([{**found, "loc": found["loc"][1:]} for found in error.errors()]))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return render_problem(http_problem(error.status_code, str(error.detail)), error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    log.error("internal error", path=request.url.path, exc_info=error)
    detail = "the server made a mistake, which its log describes; the pool may be audited with GET .../audit"
    return render_problem(http_problem(500, detail, "internal_error"))
