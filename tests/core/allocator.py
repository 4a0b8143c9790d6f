"""What the real pool and the naive one have in common, and how what they answer is compared."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from blockyard.core.commands import Command
from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.core.ids import BlockHash, SequenceId
from blockyard.core.replies import Found, Reply, SequenceState


class Allocator(Protocol):
    """Either pool."""

    def apply(self, command: Command, now_ms: int) -> Reply: ...

    def lookup(
        self, *, num_tokens: int, block_hashes: Sequence[BlockHash] = (), token_ids: Sequence[int] = ()
    ) -> Found: ...

    def sequence(self, sequence_id: SequenceId) -> SequenceState: ...


def outcome(allocator: Allocator, command: Command, now_ms: int) -> Reply | BlockyardError:
    """The reply to ``command``, or the error that it was refused with."""
    try:
        return allocator.apply(command, now_ms)
    except BlockyardError as error:
        return error


def plain(value: Any) -> Any:
    """``value`` with its dataclasses as dictionaries and its sequences as lists, so that equal is equal.

    Of an error its code and figures count; sentences, and the fields that an invalid request names, do not.
    """
    if isinstance(value, BlockyardError):
        return {"code": value.code, **({} if isinstance(value, InvalidRequest) else value.figures)}
    if is_dataclass(value):
        return {"": type(value).__name__} | {
            field.name: plain(getattr(value, field.name)) for field in fields(value) if field.name != "detail"
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
