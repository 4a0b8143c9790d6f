"""Steps as clients send them, for people: columns as lists."""

from typing import Any

import ormsgpack

from blockyard.core.packing import unpack_column


def plain_step(raw: bytes) -> dict[str, Any]:
    """The msgpack body of a step, its packed columns unpacked."""
    body: dict[str, Any] = ormsgpack.unpackb(raw, option=ormsgpack.OPT_NON_STR_KEYS)
    for part in ("commit", "free", "extend"):
        for name, column in body.get(part, {}).items():
            if isinstance(column, bytes):
                body[part][name] = unpack_column(column)
    return body
