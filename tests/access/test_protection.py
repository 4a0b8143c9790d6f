"""No route of an application stays without a rule."""

import pytest
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from blockyard.core.errors import Unauthorized
from blockyard.server.access.protection import protect
from blockyard.server.access.rules import NoRule


async def answer(_: Request) -> Response:
    return PlainTextResponse("answered")


async def talk(_: WebSocket) -> None:
    """Nothing."""


def included(*routes: Route) -> FastAPI:
    app, outer, inner = FastAPI(openapi_url=None), APIRouter(), APIRouter()
    inner.routes.extend(routes)
    outer.include_router(inner, prefix="/v1")
    app.include_router(outer)
    return app


def test_a_route_without_a_rule_keeps_the_application_from_being_made() -> None:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/v1/new", answer)
    with pytest.raises(NoRule, match="GET /v1/new has no rule"):
        protect(app)


def test_another_method_of_a_known_path_is_a_route_without_a_rule() -> None:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes.append(Route("/v1/hash", answer, methods=["PUT"]))
    with pytest.raises(NoRule, match="PUT /v1/hash"):
        protect(app)


def test_a_route_of_a_nested_router_without_a_rule_is_found() -> None:
    app, outer, inner = FastAPI(docs_url=None, redoc_url=None, openapi_url=None), APIRouter(), APIRouter()
    inner.add_api_route("/deep", answer)
    outer.include_router(inner, prefix="/inner")
    app.include_router(outer, prefix="/outer")
    with pytest.raises(NoRule, match="GET /outer/inner/deep"):
        protect(app)


@pytest.mark.parametrize(
    "app",
    [
        included(Route("/pools", answer)),
        FastAPI(openapi_url=None, routes=[WebSocketRoute("/v1/pools", talk)]),
    ],
    ids=["plain, in a router", "websocket"],
)
def test_a_route_that_could_not_be_held_to_its_rule_is_refused(app: FastAPI) -> None:
    with pytest.raises(TypeError, match="cannot be held to a rule"):
        protect(app)


def test_a_mount_without_a_rule_is_refused() -> None:
    app = FastAPI(openapi_url=None, routes=[Mount("/files", PlainTextResponse("a file"))])
    with pytest.raises(NoRule, match="/files/"):
        protect(app)


def test_a_route_is_closed_to_a_request_that_nobody_has_let_in() -> None:
    app, router = FastAPI(docs_url=None, redoc_url=None, openapi_url=None), APIRouter(prefix="/v1")
    router.add_api_route("/pools", answer)
    app.include_router(router)
    app.router.routes.append(Route("/v1/hash", answer, methods=["POST"]))
    protect(app)
    with TestClient(app) as client:
        for method, path in (("GET", "/v1/pools"), ("POST", "/v1/hash")):
            with pytest.raises(Unauthorized):
                client.request(method, path)
