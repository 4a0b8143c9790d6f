"""Commands as bytes and back: what the journal keeps of them.

A batch is msgpack, a list of ``[now_ms, name, fields, key, fingerprint]``: one entry a command, with its
class's name and fields, and what `Idempotent` adds where it came under a key. Names are part of the format: a
field may be added with a default, and none may change its meaning.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import ormsgpack

from blockyard.core import commands
from blockyard.core.commands import Command, Idempotent, PoolCommand
from blockyard.core.errors import InvalidRequest

Timed: TypeAlias = tuple[int, Command]
"""A command and the time that it was given."""

_OPTIONS = ormsgpack.OPT_NON_STR_KEYS
_LIST_32 = 0xDD  # msgpack: a list, its length in 32 bits


def encode_command(command: Command, now_ms: int) -> bytes:
    """``command``, given at ``now_ms``, as an entry of a batch.

    Raises:
        TypeError: A value of it cannot be written down, such as an integer of more than 64 bits.
    """
    return ormsgpack.packb(_entry(now_ms, command), option=_OPTIONS)


def join_batch(entries: Sequence[bytes]) -> bytes:
    """Entries of `encode_command` as a batch: a msgpack list."""
    return b"".join((struct.pack(">BI", _LIST_32, len(entries)), *entries))


def decode_batch(payload: bytes) -> Iterator[Timed]:
    """The commands of a batch, each with its time.

    Raises:
        ValueError: The payload is none, or was written by a version that knows other commands.
    """
    try:
        for now_ms, name, fields_of_command, key, fingerprint in ormsgpack.unpackb(payload, option=_OPTIONS):
            command: PoolCommand = _DECODERS[name](fields_of_command)
            if key is None:
                yield now_ms, command
            else:
                yield now_ms, Idempotent(key=key, fingerprint=fingerprint, command=command)
    except (KeyError, TypeError, AttributeError, InvalidRequest) as error:
        raise ValueError(f"a command of this version has no such name, field or value: {error}") from error


def _entry(now_ms: int, command: Command) -> tuple[int, str, PoolCommand, str | None, bytes | None]:
    if isinstance(command, Idempotent):
        inner = command.command
        return now_ms, type(inner).__name__, inner, command.key, command.fingerprint
    return now_ms, type(command).__name__, command, None, None


_Decoder: TypeAlias = Callable[[Mapping[str, Any]], Any]


def _decoder(kind: type) -> _Decoder:
    """Makes instances of the dataclass ``kind`` from their fields, those that are dataclasses likewise."""
    hints = get_type_hints(kind)
    found = [(field.name, _decoder_of_hint(hints[field.name])) for field in fields(kind)]
    nested = [(name, make) for name, make in found if make is not None]
    if not nested:
        return lambda values: kind(**values)

    def decode(values: Mapping[str, Any]) -> Any:
        made = dict(values)
        for name, make in nested:
            if made.get(name) is not None:
                made[name] = make(made[name])
        return kind(**made)

    return decode


def _decoder_of_hint(hint: Any) -> Callable[[Any], Any] | None:
    """For a field's type that holds a dataclass: itself, optional, or a sequence of it. None for all else."""
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return _decoder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next((make for part in arguments if (make := _decoder_of_hint(part)) is not None), None)
    if isinstance(origin, type) and issubclass(origin, Sequence) and arguments:
        make_one = _decoder_of_hint(arguments[0])
        if make_one is None:
            return tuple if origin is tuple else None
        return lambda values: tuple(map(make_one, values))
    return None


_DECODERS: dict[str, _Decoder] = {
    name: _decoder(kind)
    for name, kind in vars(commands).items()
    if isinstance(kind, type) and issubclass(kind, PoolCommand) and kind is not PoolCommand
}
