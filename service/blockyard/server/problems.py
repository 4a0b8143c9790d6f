"""Errors as HTTP answers: ``application/problem+json`` (RFC 9457). Status codes are known here alone."""

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from blockyard.core.errors import (
    BlockyardError,
    BodyTooLarge,
    DoubleFree,
    InsufficientBlocks,
    InvalidRequest,
    LeaseExpired,
    NotOwner,
    NotReady,
    Overloaded,
    PoolExists,
    PoolInUse,
    PoolNotFound,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
)

STATUS: dict[type[BlockyardError], HTTPStatus] = {
    InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    PoolNotFound: HTTPStatus.NOT_FOUND,
    SequenceNotFound: HTTPStatus.NOT_FOUND,
    PoolExists: HTTPStatus.CONFLICT,
    PoolInUse: HTTPStatus.CONFLICT,
    SequenceExistsElsewhere: HTTPStatus.CONFLICT,
    InsufficientBlocks: HTTPStatus.CONFLICT,
    NotOwner: HTTPStatus.CONFLICT,
    DoubleFree: HTTPStatus.CONFLICT,
    StaleEpoch: HTTPStatus.CONFLICT,
    LeaseExpired: HTTPStatus.GONE,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    NotReady: HTTPStatus.SERVICE_UNAVAILABLE,
}

PROBLEM_JSON = "application/problem+json"


class Problem(BaseModel):
    """An error. ``code`` is stable; further members are the figures that the code names."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str


def problem(error: BlockyardError) -> dict[str, Any]:
    """``error`` as the members of a problem document."""
    return {
        **error.figures,
        "type": f"urn:blockyard:error:{error.code}",
        "title": error.title,
        "status": STATUS[type(error)].value,
        "detail": error.detail,
        "code": error.code,
    }


def http_problem(status: int, detail: str, code: str | None = None) -> dict[str, Any]:
    """A problem of HTTP itself, such as an unknown route: its code is the status's name."""
    name = HTTPStatus(status)
    code = code or name.name.lower()
    return {"type": "about:blank", "title": name.phrase, "status": status, "detail": detail, "code": code}


def internal_error() -> dict[str, Any]:
    """What a caller is told of a mistake of ours."""
    detail = "the server made a mistake, which its log describes; GET .../audit recounts the pool"
    return http_problem(500, detail, "internal_error")


def invalid_body(error: ValidationError) -> InvalidRequest:
    """What pydantic found wrong in a body, by field."""
    return invalid_fields(
        [dict(found) for found in error.errors(include_url=False, include_context=False, include_input=False)]
    )


def invalid_fields(found: list[dict[str, Any]]) -> InvalidRequest:
    """The same, from pydantic's list of findings. The first hundred are named."""
    errors = [
        {"field": ".".join(str(part) for part in item["loc"]) or "body", "message": str(item["msg"])}
        for item in found[:100]
    ]
    first = errors[0]
    return InvalidRequest(f"{first['field']}: {first['message']}", {"errors": errors})
