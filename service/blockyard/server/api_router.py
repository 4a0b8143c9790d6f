"""Routers under ``/v1``: what all of their routes have in common."""

from fastapi import APIRouter, Depends, Request

from blockyard.core.errors import InvalidRequest
from blockyard.server.refusals import refusals


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
    )
