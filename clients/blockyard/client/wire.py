"""What travels: requests and responses as plain values, and the two forms of a body.

Nothing here knows a socket. Transports carry a `Request` and bring a `Response`; the protocol makes the one
and reads the other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import ormsgpack

from blockyard.client.errors import UnexpectedReply


class Form(StrEnum):
    """How a body is written. The value is its media type."""

    JSON = "application/json"
    """Readable; block hashes are lower-case hex."""
    MSGPACK = "application/msgpack"
    """Smaller and faster; block hashes are raw bytes. Only the hot routes take it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    Attributes:
        method: ``GET``, ``POST``, ``PUT`` or ``DELETE``.
        origin: Scheme and authority, ``http://host:port``.
        target: Path and query, percent-encoded.
        headers: Without ``Host`` and ``Content-Length``, which the transport adds. A token may be among them.
        body: Empty for none.
    """

    method: str
    origin: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response, read to its end. Header names are lower-case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def encode(body: Any, form: Form) -> bytes:
    """``body`` (dicts, lists, numbers, strings; bytes for block hashes) in the given form.

    Integers that are keys stay integers in msgpack, and become text in JSON.
    """
    if form is Form.MSGPACK:
        return ormsgpack.packb(body, option=ormsgpack.OPT_NON_STR_KEYS)
    return json.dumps(body, default=_hex, separators=(",", ":")).encode()


def decode(response: Response) -> Any:
    """The body as its ``Content-Type`` says: msgpack, else JSON; None for an empty one.

    Raises:
        UnexpectedReply: The body is not what its type says.
    """
    if not response.body:
        return None
    try:
        if "msgpack" in response.headers.get("content-type", ""):
            return ormsgpack.unpackb(response.body, option=ormsgpack.OPT_NON_STR_KEYS)
        return json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise UnexpectedReply(
            f"status {response.status} with an unreadable body: {error}", {"status": response.status}
        ) from error


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} does not travel")
