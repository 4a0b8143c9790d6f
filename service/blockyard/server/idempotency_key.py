"""The header under which a call that is repeated is done once."""

from typing import Any

import xxhash

from blockyard.core import commands as ask
from blockyard.core.errors import InvalidRequest
from blockyard.server.media import Headers

MAX_KEY_LENGTH = 256

IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A repeat with the same key and lease gets the first reply again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH},
}
"""A parameter in the OpenAPI document."""


def once(headers: Headers, path: str, raw: bytes, command: ask.PoolCommand) -> ask.Command:
    """``command`` of a POST, to be done once where it comes under an idempotency key.

    Args:
        headers: By their lower-case names.
        path: Of the request.
        raw: Its body. One key belongs to one path and body.
        command: What they ask for.

    Raises:
        InvalidRequest: The key is none.
    """
    given = headers.get(b"idempotency-key")
    if given is None:
        return command
    key = given.decode("latin-1")
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidRequest.of("idempotency_key", f"must be 1 to {MAX_KEY_LENGTH} characters")
    fingerprint = xxhash.xxh3_128_digest(path.encode() + b"\n" + raw)
    return ask.Idempotent(key=key, fingerprint=fingerprint, command=command)
