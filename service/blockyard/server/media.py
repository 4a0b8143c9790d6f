"""Bodies on the wire: JSON, and msgpack of the same structure where a route takes it."""

from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import ormsgpack
import pydantic_core
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.core.replies import Reply
from blockyard.server.body import Body
from blockyard.server.problems import PROBLEM_JSON, invalid_body, problem

JSON = "application/json"
MSGPACK = "application/msgpack"
_MSGPACK = MSGPACK.encode()

Headers: TypeAlias = Mapping[bytes, bytes]
"""A request's headers by their lower-case names, as ASGI has them."""

B = TypeVar("B", bound=Body)
R = TypeVar("R", bound=Reply)


class BodyReader(Generic[B]):
    """Reads one kind of body; its validator is prepared once."""

    __slots__ = ("_adapter", "_takes_msgpack")

    def __init__(self, body: type[B], *, takes_msgpack: bool) -> None:
        self._adapter: TypeAdapter[B] = TypeAdapter(body)
        self._takes_msgpack = takes_msgpack

    def read(self, raw: bytes, headers: Headers) -> B:
        """The body in ``raw``.

        Raises:
            InvalidRequest: It is not of the content type, or its values are not valid.
        """
        try:
            if headers.get(b"content-type", b"").startswith(_MSGPACK):
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
    accept = headers.get(b"accept", b"*/*")
    if accept == b"*/*":
        return headers.get(b"content-type", b"").startswith(_MSGPACK)
    return _MSGPACK in accept


class ReplyWriter(Generic[R]):
    """Writes one kind of reply. Fields that are None are left out."""

    __slots__ = ("_adapter",)

    def __init__(self, reply: type[R]) -> None:
        self._adapter: TypeAdapter[R] = TypeAdapter(reply)

    def write(self, reply: R, *, msgpack: bool, status: int) -> Response:
        """``reply`` as a response."""
        if msgpack:
            plain = self._adapter.dump_python(reply, exclude_none=True)
            return Response(ormsgpack.packb(plain), status, media_type=MSGPACK)
        return Response(self._adapter.dump_json(reply, exclude_none=True), status, media_type=JSON)


def render_problem(document: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """A problem document as a response. It is always JSON."""
    return Response(pydantic_core.to_json(document), document["status"], headers, media_type=PROBLEM_JSON)


def render_error(error: BlockyardError) -> Response:
    """``error`` as a response; where a retry can help, with the time to wait in whole seconds."""
    headers = {}
    if "retry_after_ms" in error.figures:
        headers["Retry-After"] = str(div_ceil(error.figures["retry_after_ms"], 1000))
    return render_problem(problem(error), headers)
