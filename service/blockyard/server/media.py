"""Bodies on the wire: JSON, and msgpack of the same structure where a route takes it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import ormsgpack
import pydantic_core
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import BlockyardError, InvalidRequest, PoolElsewhere, Unauthorized
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
    """Reads one kind of body; its validator is prepared once.

    Args:
        body: Which kind.
        takes_msgpack: Whether it may come in msgpack.
        check_faults: Raises what pydantic's findings mean, where it is more than that a body is not valid.
    """

    __slots__ = ("_adapter", "_check_faults", "_takes_msgpack")

    def __init__(
        self,
        body: type[B],
        *,
        takes_msgpack: bool,
        check_faults: Callable[[Iterable[Mapping[str, Any]]], None],
    ) -> None:
        self._check_faults = check_faults
        self._adapter: TypeAdapter[B] = TypeAdapter(body)
        self._takes_msgpack = takes_msgpack

    def read(self, raw: bytes, headers: Headers) -> B:
        """The body in ``raw``.

        Raises:
            InvalidRequest: It is not of the content type, or its values are not valid.
            LimitExceeded: A list of it is too long.
        """
        try:
            if headers.get(b"content-type", b"").startswith(_MSGPACK):
                if not self._takes_msgpack:
                    raise InvalidRequest.of("Content-Type", f"this route takes {JSON} only")
                return self._adapter.validate_python(_unpack(raw))
            return self._adapter.validate_json(raw)
        except ValidationError as error:
            self._check_faults(error.errors(include_url=False, include_input=False))
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


class Answer(NamedTuple):
    """What a request is answered.

    Attributes:
        status: HTTP status.
        media_type: Of the body.
        body: As it travels.
        headers: Beside those that describe the body.
    """

    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str] | None = None

    @property
    def head(self) -> bytes:
        """Its headers, as they travel."""
        head = b"content-length: %d\r\ncontent-type: %s\r\n" % (len(self.body), self.media_type.encode())
        if self.headers:
            head += header_lines(
                (name.lower().encode(), value.encode()) for name, value in self.headers.items()
            )
        return head

    def with_headers(self, headers: Mapping[str, str]) -> "Answer":
        """The same with further headers."""
        return self._replace(headers={**(self.headers or {}), **headers})

    def response(self) -> Response:
        """The same for Starlette."""
        return Response(self.body, self.status, self.headers, media_type=self.media_type)


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """``headers`` as they travel."""
    return b"".join([b"%s: %s\r\n" % header for header in headers])


class ReplyWriter(Generic[R]):
    """Writes one kind of reply. Fields that are None are left out."""

    __slots__ = ("_adapter", "_plain")

    def __init__(self, reply: type[R]) -> None:
        self._adapter: TypeAdapter[R] = TypeAdapter(reply)
        self._plain = _plain_writer(reply)

    def write(self, reply: R, *, msgpack: bool, status: int) -> Answer:
        """``reply`` as an answer."""
        if msgpack:
            return Answer(status, MSGPACK, ormsgpack.packb(self._plain(reply)))
        return Answer(status, JSON, self._adapter.dump_json(reply, exclude_none=True))


def _plain_writer(kind: type) -> Callable[[Any], dict[str, Any]]:
    """What makes instances of the dataclass ``kind`` dictionaries, without what is None in them.

    Fields that are dataclasses, or lists of them, likewise: told by the fields' types, once.
    """
    hints = get_type_hints(kind)
    writers = [(field.name, _writer_of_hint(hints[field.name])) for field in fields(kind)]

    def plain(value: Any) -> dict[str, Any]:
        found = {}
        for name, write in writers:
            part = getattr(value, name)
            if part is not None:
                found[name] = part if write is None else write(part)
        return found

    return plain


def _writer_of_hint(hint: Any) -> Callable[[Any], Any] | None:
    """For a field's type that is a dataclass, a list of it, or of one of several; None for all else."""
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return _plain_writer(hint)
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        kinds = get_args(item) if get_origin(item) is UnionType else (item,)
        writers = {
            kind: _plain_writer(kind) for kind in kinds if isinstance(kind, type) and is_dataclass(kind)
        }
        if writers:
            return lambda values: [writers[type(value)](value) for value in values]
    return None


def render_problem(document: dict[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
    """A problem document as an answer. It is always JSON."""
    return Answer(document["status"], PROBLEM_JSON, pydantic_core.to_json(document), headers)


def render_error(error: BlockyardError) -> Answer:
    """``error`` as an answer, with where to go, or how long to wait in whole seconds, where that can help."""
    headers = {}
    if "retry_after_ms" in error.figures:
        headers["Retry-After"] = str(div_ceil(error.figures["retry_after_ms"], 1000))
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, PoolElsewhere):
        headers["Location"] = error.figures["url"]
    return render_problem(problem(error), headers)
