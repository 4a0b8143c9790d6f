"""Errors as HTTP answers: ``application/problem+json`` (RFC 9457). Status codes are known here alone."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blockyard.core.errors import (
    BlockyardError,
    BodyTooLarge,
    DoubleFree,
    Forbidden,
    HeadTooLarge,
    InsufficientBlocks,
    InvalidRequest,
    LeaseExpired,
    LimitExceeded,
    NoCluster,
    NoEvents,
    NotOwner,
    NotReady,
    Overloaded,
    PinNotFound,
    PlanNotFound,
    PoolElsewhere,
    PoolExists,
    PoolInUse,
    PoolNotFound,
    PrefixNotCached,
    QuotaExceeded,
    RequestTimeout,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
    TenantNotFound,
    Unauthorized,
    WorkerNotFound,
    WorkerReplaced,
)
from blockyard.planning.errors import PLAN_ERRORS
from blockyard.planning.layers import LAYER_KINDS

STATUS: dict[type[BlockyardError], HTTPStatus] = {
    InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    PoolNotFound: HTTPStatus.NOT_FOUND,
    PoolElsewhere: HTTPStatus.TEMPORARY_REDIRECT,
    SequenceNotFound: HTTPStatus.NOT_FOUND,
    PlanNotFound: HTTPStatus.NOT_FOUND,
    WorkerNotFound: HTTPStatus.NOT_FOUND,
    PinNotFound: HTTPStatus.NOT_FOUND,
    TenantNotFound: HTTPStatus.NOT_FOUND,
    NoEvents: HTTPStatus.NOT_FOUND,
    NoCluster: HTTPStatus.NOT_FOUND,
    WorkerReplaced: HTTPStatus.CONFLICT,
    PoolExists: HTTPStatus.CONFLICT,
    PoolInUse: HTTPStatus.CONFLICT,
    SequenceExistsElsewhere: HTTPStatus.CONFLICT,
    InsufficientBlocks: HTTPStatus.CONFLICT,
    QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    PrefixNotCached: HTTPStatus.CONFLICT,
    NotOwner: HTTPStatus.CONFLICT,
    DoubleFree: HTTPStatus.CONFLICT,
    StaleEpoch: HTTPStatus.CONFLICT,
    LeaseExpired: HTTPStatus.GONE,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    LimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HeadTooLarge: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    RequestTimeout: HTTPStatus.REQUEST_TIMEOUT,
    Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    NotReady: HTTPStatus.SERVICE_UNAVAILABLE,
    **dict.fromkeys(PLAN_ERRORS, HTTPStatus.UNPROCESSABLE_ENTITY),
}

PROBLEM_JSON = "application/problem+json"


class Problem(BaseModel):
    """An error (RFC 9457). ``code`` is stable; further members are the figures that the code names."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = Field(description="What is wrong, and what to do about it.")
    code: str = Field(
        description="Stable. " + " ".join(f"`{error.code}`: {error.title}." for error in STATUS),
        examples=[InsufficientBlocks.code],
    )


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
    found = error.errors(include_url=False, include_input=False)
    return invalid_fields([dict(item) for item in found])


def invalid_fields(found: list[dict[str, Any]]) -> InvalidRequest:
    """The same, from pydantic's list of findings: the first hundred, the first three in the sentence."""
    errors = [_finding(item) for item in found[:100]]
    sentence = "; ".join(f"{error['field']}: {error['message']}" for error in errors[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return InvalidRequest(sentence + more, {"errors": errors})


def _path(place: tuple[int | str, ...]) -> Iterator[int | str]:
    """``place`` without the kind that pydantic puts behind the name of a layer."""
    for number, part in enumerate(place):
        if not (number >= 2 and place[number - 2] == "layers" and part in LAYER_KINDS):
            yield part


def _finding(item: dict[str, Any]) -> dict[str, str]:
    field = ".".join(str(part) for part in _path(item["loc"])) or "body"
    message = str(item["msg"])
    match item["type"]:
        case "json_invalid":
            field, message = "body", f"is not JSON: {item['ctx']['error']}"
        case "missing":
            message = "is missing"
        case "extra_forbidden":
            message = "is no field of this request"
        case "model_attributes_type" | "model_type":
            message = "has to be a JSON object, sent as application/json"
        case "union_tag_invalid":
            kinds = item["ctx"]["expected_tags"].replace("'", "")
            field, message = f"{field}.kind", f"is none of {kinds}"
        case "union_tag_not_found":
            field, message = f"{field}.kind", "is missing"
    return {"field": field, "message": message}
