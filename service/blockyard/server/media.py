"""Bodies on the wire: JSON, and msgpack of the same structure where a route takes it."""

from typing import Any, Generic, TypeVar

import ormsgpack
import pydantic_core
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response

from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.server.problems import PROBLEM_JSON, STATUS, invalid_body, problem
from blockyard.server.schemas import Body

JSON = "application/json"
MSGPACK = "application/msgpack"

B = TypeVar("B", bound=Body)


class BodyReader(Generic[B]):
    """Reads one kind of body; its validator is prepared once."""

    __slots__ = ("_adapter", "_takes_msgpack")

    def __init__(self, body: type[B], *, takes_msgpack: bool) -> None:
        self._adapter: TypeAdapter[B] = TypeAdapter(body)
        self._takes_msgpack = takes_msgpack

    def read(self, raw: bytes, content_type: str | None) -> B:
        """The body in ``raw``.

        Raises:
            InvalidRequest: It is not of the content type, or its values are not valid.
        """
        try:
            if content_type is not None and content_type.startswith(MSGPACK):
                if not self._takes_msgpack:
                    raise InvalidRequest.of("Content-Type", f"this route takes {JSON} only")
                return self._adapter.validate_python(_unpack(raw))
            return self._adapter.validate_json(raw)
        except ValidationError as error:
            raise invalid_body(error) from None


def _unpack(raw: bytes) -> Any:
    try:
        return ormsgpack.unpackb(raw, option=ormsgpack.OPT_NON_STR_KEYS)
    except ValueError as error:
        raise InvalidRequest.of("body", f"not valid msgpack: {error}") from None


def wants_msgpack(headers: Headers) -> bool:
    """Whether the caller accepts msgpack: what it sent decides where it does not say."""
    accept = headers.get("accept")
    if accept is None or accept == "*/*":
        return headers.get("content-type", "").startswith(MSGPACK)
    return MSGPACK in accept


def render(value: Any, *, msgpack: bool = False, status: int = 200) -> Response:
    """``value``, a dataclass or plain data, as a response. Fields that are None are left out."""
    if msgpack:
        plain = pydantic_core.to_jsonable_python(value, exclude_none=True)
        return Response(ormsgpack.packb(plain, option=ormsgpack.OPT_NON_STR_KEYS), status, media_type=MSGPACK)
    return Response(pydantic_core.to_json(value, exclude_none=True), status, media_type=JSON)


def render_error(error: BlockyardError) -> Response:
    """``error`` as a problem document. It is always JSON."""
    headers = {}
    if "retry_after_ms" in error.figures:
        headers["Retry-After"] = str(-(-error.figures["retry_after_ms"] // 1000))
    return Response(
        pydantic_core.to_json(problem(error)), STATUS[type(error)], headers, media_type=PROBLEM_JSON
    )
