"""The columns of a step, in its body and in its reply, without copies of what can travel as it is."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar

from blockyard.core.replies import StepExtended

T = TypeVar("T")


def as_column(values: Sequence[T]) -> Sequence[T]:
    """``values`` as the encoders take them: any sequence becomes a list, unless it is one or a tuple."""
    return values if type(values) in (list, tuple) else list(values)


def read_extended(value: Any) -> Any:
    """A decoded `StepExtended`, with the decoder's lists; ``value`` itself if it is not plainly one."""
    try:
        sequences, block_ids, insufficient = value["sequences"], value["block_ids"], value["insufficient"]
    except (TypeError, KeyError):
        return value
    if _is_list_of(int, sequences) and _is_list_of(int, insufficient) and _are_block_ids(block_ids):
        return StepExtended(sequences=sequences, block_ids=block_ids, insufficient=insufficient)
    return value


def _are_block_ids(value: Any) -> bool:
    """Whether it is a list of lists of lists of integers."""
    if not _is_list_of(list, value):
        return False
    tables = list(chain.from_iterable(value))
    return _is_list_of(list, tables) and _is_list_of(int, list(chain.from_iterable(filter(None, tables))))


def _is_list_of(kind: type, value: Any) -> bool:
    return type(value) is list and list(map(type, value)).count(kind) == len(value)
