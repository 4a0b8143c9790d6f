"""Replies and errors as plain data and back, for snapshots.

A dataclass becomes ``{"#": its name, field: value, ...}``, an error the same with its code: names are part of
the format of snapshots.
"""

from dataclasses import fields, is_dataclass
from typing import Any

from blockyard.core import replies
from blockyard.core.errors import ERRORS, BlockyardError

_TAG = "#"
_REPLIES = {
    name: value for name, value in vars(replies).items() if isinstance(value, type) and is_dataclass(value)
}
_ERRORS = {error.code: error for error in ERRORS}


def encode_value(value: Any) -> Any:
    """``value`` with every reply and error in it as a plain dictionary."""
    if isinstance(value, BlockyardError):
        return {_TAG: value.code, "detail": value.detail, "figures": value.figures}
    if is_dataclass(value):
        named = {field.name: encode_value(getattr(value, field.name)) for field in fields(value)}
        return {_TAG: type(value).__name__, **named}
    if isinstance(value, (list, tuple)):
        return [encode_value(item) for item in value]
    return value


def decode_value(value: Any) -> Any:
    """The inverse of `encode_value`; sequences come back as lists."""
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if not isinstance(value, dict) or _TAG not in value:
        return value
    named = {name: decode_value(item) for name, item in value.items() if name != _TAG}
    error = _ERRORS.get(value[_TAG])
    return _REPLIES[value[_TAG]](**named) if error is None else error(**named)
