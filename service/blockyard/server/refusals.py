"""How routes may fail, for the OpenAPI document: each says which errors it knows, status by status."""

from http import HTTPStatus
from typing import Any

from blockyard.core.errors import (
    BlockyardError,
    BodyTooLarge,
    Forbidden,
    HeadTooLarge,
    InvalidRequest,
    NotReady,
    Overloaded,
    PoolElsewhere,
    PoolExists,
    PoolNotFound,
    RequestTimeout,
    Unauthorized,
)
from blockyard.server.problems import PROBLEM_JSON, STATUS

EVERYWHERE: tuple[type[BlockyardError], ...] = (
    InvalidRequest,
    HeadTooLarge,
    BodyTooLarge,
    RequestTimeout,
    NotReady,
    Overloaded,
)
"""What any request may be refused for."""

TO_STRANGERS = (Unauthorized, Forbidden)
"""What a request to a route that is not open may be refused for besides."""

_HTTP = {HTTPStatus.NOT_FOUND: "no route has such a path"}
"""What HTTP itself may say, under the status's name as the code: 404 where a path has a variable part."""

_PROBLEM = "#/components/schemas/Problem"


_OF_A_POOL = {PoolNotFound, PoolExists}
"""Where one of these may come from a node that owns the pool, another node says who does."""


def refusals(*errors: type[BlockyardError]) -> dict[int | str, dict[str, Any]]:
    """The responses of a route that may be refused for ``errors``, beside what any may be refused for."""
    elsewhere = () if _OF_A_POOL.isdisjoint(errors) else (PoolElsewhere,)
    return responses(*EVERYWHERE, *elsewhere, *errors)


def responses(*errors: type[BlockyardError]) -> dict[int | str, dict[str, Any]]:
    """The responses that tell of ``errors``."""
    by_status: dict[HTTPStatus, dict[str, str]] = {}
    for error in errors:
        by_status.setdefault(STATUS[error], {})[error.code] = error.title.lower()
    for status, codes in by_status.items():
        if status in _HTTP:
            codes[status.name.lower()] = _HTTP[status]
    return {status.value: _response(status, codes) for status, codes in sorted(by_status.items())}


def _response(status: HTTPStatus, codes: dict[str, str]) -> dict[str, Any]:
    problem = {
        "$ref": _PROBLEM,
        "properties": {"status": {"const": status.value}, "code": {"enum": list(codes)}},
    }
    return {
        "description": "; ".join(f"`{code}`: {title}" for code, title in codes.items()) + ".",
        "content": {PROBLEM_JSON: {"schema": problem}},
    }
