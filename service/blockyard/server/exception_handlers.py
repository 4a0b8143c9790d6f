"""What FastAPI answers where a route ends with an exception: a problem document, whatever it is."""

from collections.abc import Awaitable, Callable
from http import HTTPMethod, HTTPStatus
from typing import TypeAlias

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from blockyard.core.errors import BlockyardError, InvalidRequest, LimitExceeded
from blockyard.server.hash_limit import HashLimit
from blockyard.server.media import render_error, render_problem
from blockyard.server.problems import http_problem, internal_error, invalid_fields

Handler: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]


def exception_handlers(hash_limit: HashLimit) -> dict[type[Exception], Handler]:
    """By the exception; ``hash_limit`` is what a list that is too long is over."""
    return {
        BlockyardError: _refused,
        RequestValidationError: _invalid(hash_limit),
        HTTPException: _http_error,
        Exception: _failed,
    }


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BlockyardError)
    return render_error(error).response()


def _invalid(hash_limit: HashLimit) -> Handler:
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
