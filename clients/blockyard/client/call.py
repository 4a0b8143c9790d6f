"""One call of the protocol as a value: what to send, and how to read what comes back."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from blockyard.client.errors import UnexpectedReply, read_problem
from blockyard.client.wire import Form, Request, Response, decode, encode
from blockyard.core.errors import BlockyardError

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    """A request, and the reading of its response.

    Attributes:
        method: The HTTP method.
        path: Path and query, percent-encoded.
        read: The response's value, or its error raised.
        body: Encoded, the same bytes on every try; empty for none.
        form: Of ``body``, and of the response that is asked for.
        is_keyed: Only a key makes it repeatable: each try carries the same ``Idempotency-Key``.
        if_gone: On a repeat, this error means that an earlier try has succeeded, with this value.
        unreachable: What it means that nobody answers, where that is what the call asks; else None.
        wait_s: How long the server may let it wait, at each try: so much later it may be answered.
    """

    method: str
    path: str
    read: Callable[[Response], T]
    body: bytes = b""
    form: Form = Form.JSON
    is_keyed: bool = False
    if_gone: tuple[type[BlockyardError], T] | None = None
    unreachable: T | None = None
    wait_s: float = 0.0

    def request(self, origin: str, key: str | None, caller: Mapping[str, str]) -> Request:
        """The request at ``origin``, under the idempotency key ``key``, with the headers ``caller``."""
        headers: dict[str, str] = {"Accept": self.form, **caller}
        if self.body:
            headers["Content-Type"] = self.form
        if key is not None:
            headers["Idempotency-Key"] = key
        return Request(self.method, origin, self.path, headers, self.body)


def encode_given(form: Form, **fields: Any) -> bytes:
    """A body of those ``fields`` that are not None."""
    return encode({name: value for name, value in fields.items() if value is not None}, form)


def reader(kind: type[T], **parts: Callable[[Any], Any]) -> Callable[[Response], T]:
    """Reads a success as ``kind``, a dataclass.

    Fields that it does not have are passed over, since additions are free; a field that may be None is None
    where it was left out.

    Args:
        kind: What to read.
        parts: For large fields: reads a field's value into what ``kind`` has there, or gives it back as it is
            where it is not as expected. Then it is told what is wrong with it.
    """
    adapter = TypeAdapter(kind)
    hints = get_type_hints(kind)
    left_out = {name: None for name, hint in hints.items() if type(None) in get_args(hint)}

    def read(response: Response) -> T:
        document = success(response)
        if isinstance(document, dict):
            document = {**left_out, **document}
            for name in parts.keys() & document.keys():
                document[name] = parts[name](document[name])
        try:
            return adapter.validate_python(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "body"
            figures = {"status": response.status}
            raise UnexpectedReply(f"the reply's {where}: {first['msg']}", figures) from error

    return read


def success(response: Response) -> Any:
    """The decoded body of a success.

    Raises:
        BlockyardError: The response is a refusal.
    """
    if 200 <= response.status < 300:
        return decode(response)
    try:
        problem = decode(response)
    except UnexpectedReply:
        problem = None  # a gateway's page
    raise read_problem(response.status, problem if isinstance(problem, dict) else {})


def read_nothing(response: Response) -> None:
    """A success whose body does not matter.

    Raises:
        BlockyardError: The response is a refusal.
    """
    success(response)


def read_probe(response: Response) -> bool:
    """Whether the answer is yes: 200; no is 503.

    Raises:
        BlockyardError: The response is neither.
    """
    if response.status == 503:
        return False
    success(response)
    return True
