"""The columns of a step, in its body and in its reply, without copies of what can travel as it is."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from blockyard.client.wire import Form
from blockyard.core.ids import SequenceHandle
from blockyard.core.packing import pack_column
from blockyard.core.replies import StepExtended


def as_column(values: Sequence[int], form: Form) -> Sequence[int] | bytes:
    """``values`` as they travel: packed in msgpack, where they can be; else any sequence becomes a list."""
    packed = pack_column(values) if form is Form.MSGPACK else None
    if packed is not None:
        return packed
    return values if type(values) in (list, tuple) else list(values)


def with_unlisted(reply: StepExtended, asked: Sequence[SequenceHandle]) -> StepExtended:
    """``reply`` with all of the ``asked`` sequences that got slots, where only changes are in it.

    Those whose tables got nothing share one value.
    """
    nothing = reply.unlisted
    if nothing is None:
        return reply
    sequences, given = list(asked), dict(zip(reply.sequences, reply.block_ids, strict=False))
    if reply.insufficient:
        refused = set(reply.insufficient)
        sequences = [handle for handle in sequences if handle not in refused]
    block_ids = [nothing] * len(sequences)
    if given:
        block_ids = [given.get(handle, nothing) for handle in sequences]
    return StepExtended(sequences=sequences, block_ids=block_ids, insufficient=reply.insufficient)


def read_extended(value: Any) -> Any:
    """A decoded `StepExtended`, with the decoder's lists; ``value`` itself if it is not plainly one."""
    try:
        sequences, block_ids, insufficient = value["sequences"], value["block_ids"], value["insufficient"]
    except (TypeError, KeyError):
        return value
    if _is_list_of(int, sequences) and _is_list_of(int, insufficient) and _are_block_ids(block_ids):
        unlisted = value.get("unlisted")
        if unlisted is None or _are_block_ids([unlisted]):
            return StepExtended(
                sequences=sequences, block_ids=block_ids, insufficient=insufficient, unlisted=unlisted
            )
    return value


def _are_block_ids(value: Any) -> bool:
    """Whether it is a list of lists of lists of integers."""
    if not _is_list_of(list, value):
        return False
    tables = list(chain.from_iterable(value))
    return _is_list_of(list, tables) and _is_list_of(int, list(chain.from_iterable(filter(None, tables))))


def _is_list_of(kind: type, value: Any) -> bool:
    return type(value) is list and list(map(type, value)).count(kind) == len(value)
