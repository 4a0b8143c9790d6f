"""Routers under ``/v1``: what all of their routes have in common."""

from collections.abc import Callable, Coroutine
from typing import Any

import pydantic_core
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from blockyard.core.errors import InvalidRequest
from blockyard.server.refusals import refusals


class _StrictRequest(Request):
    """A request whose body is read as the hot calls' are: JSON in UTF-8, without NaN or lone surrogates."""

    async def json(self) -> Any:
        return pydantic_core.from_json(await self.body(), allow_inf_nan=False)


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


def refuse_unknown_query(request: Request) -> None:
    """A typo in a query parameter never passes silently.

    Raises:
        InvalidRequest: The route has no parameter of such a name.
    """
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    for name in request.query_params.keys() - known:
        raise InvalidRequest.of(name, "is no query parameter of this route")


def api_router(path: str = "", *, tag: str | None = None) -> APIRouter:
    """Routes below ``/v1`` and ``path``: errors are problems, and a query has no unknown parameter."""
    return APIRouter(
        prefix=f"/v1{path}",
        tags=None if tag is None else [tag],
        responses=refusals(),
        dependencies=[Depends(refuse_unknown_query)],
        route_class=_StrictRoute,
    )
