"""Block ids as a caller gives them: listed and checked before anything is written, then taken in runs."""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, TypeAlias, TypeVar

import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK

T = TypeVar("T")

BlockIds: TypeAlias = Iterable[SupportsIndex]
"""Integers of any sort: Python's, numpy's, or tensors without dimensions; no bools."""

Copies: TypeAlias = Iterable[tuple[SupportsIndex, SupportsIndex]]
"""Pairs of the block that is read, and the one that is written."""

Copy: TypeAlias = tuple[int, int]
"""One of them, checked."""


def id_list(block_ids: BlockIds, field: str = "block_ids") -> list[int]:
    """``block_ids`` as a list of Python's integers.

    Raises:
        InvalidRequest: One of them is no integer; ``field`` is named.
    """
    ids: list[Any] = _listed(block_ids, field)
    # Nearly always there is nothing to do, and a table has many.
    return ids if set(map(type, ids)) <= {int} else [_id(block, field) for block in ids]


def checked_sources(block_ids: BlockIds, num_blocks: int) -> list[int]:
    """``block_ids`` as a list, each one of ``num_blocks``.

    Raises:
        InvalidRequest: The first that is not.
    """
    ids = id_list(block_ids)
    _check_range(ids, num_blocks)
    return ids


def checked_destinations(block_ids: BlockIds, num_blocks: int) -> list[int]:
    """``block_ids`` as a list that may be written: in range, without the null block, none twice.

    Raises:
        InvalidRequest: The first that is not.
    """
    ids = id_list(block_ids)
    _check_destinations(ids, num_blocks)
    return ids


def checked_copies(copies: Copies, num_blocks: int) -> list[Copy]:
    """``copies`` as a list of pairs whose outcome does not depend on their order.

    Raises:
        InvalidRequest: The first that is no pair of ids, a source out of range or also a destination, or a
            destination that may not be written.
    """
    pairs = [_pair(copy, number) for number, copy in enumerate(_listed(copies, "copies"))]
    sources = {source for source, _ in pairs}
    _check_range(sources, num_blocks)
    _check_destinations([destination for _, destination in pairs], num_blocks)
    for _, destination in pairs:
        if destination in sources:
            raise InvalidRequest.of("block_ids", f"block {destination} is both copied and written")
    return pairs


def _check_range(block_ids: Iterable[int], num_blocks: int) -> None:
    for block in block_ids:
        if not 0 <= block < num_blocks:
            raise InvalidRequest.of("block_ids", f"block {block} is out of range: there are {num_blocks}")


def _check_destinations(block_ids: Sequence[int], num_blocks: int) -> None:
    _check_range(block_ids, num_blocks)
    if NULL_BLOCK in block_ids:
        raise InvalidRequest.of("block_ids", f"block {NULL_BLOCK} is the null block, which is never written")
    if len(set(block_ids)) < len(block_ids):
        twice, _ = Counter(block_ids).most_common(1)[0]
        raise InvalidRequest.of("block_ids", f"block {twice} is written twice")


def _listed(values: Iterable[T], field: str) -> list[T]:
    """All of them at once: an iterator can be looked at but once, before anything is written."""
    try:
        iterator = iter(values)
    except TypeError:
        raise InvalidRequest.of(field, f"must be a sequence, not {type(values).__name__}") from None
    return list(iterator)


def _pair(copy: Any, number: int) -> Copy:
    field = f"copies.{number}"
    try:
        source, destination = copy
    except (TypeError, ValueError):
        raise InvalidRequest.of(field, "is no pair of a source and a destination") from None
    return _id(source, field), _id(destination, field)


def _id(value: Any, field: str) -> int:
    # Torch takes tensors of one element, and of bools, for integers.
    is_like_one = isinstance(value, bool) or (
        isinstance(value, Tensor) and (value.dim() > 0 or value.dtype is torch.bool)
    )
    try:
        if not is_like_one:
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidRequest.of(field, f"{value!r} is no block id: these are integers")


def runs(copies: Iterable[Copy]) -> Iterator[tuple[int, int, int]]:
    """Source, destination and count of the blocks that follow each other on both sides."""
    source = destination = count = 0
    for next_source, next_destination in sorted(copies):
        if count and (next_source, next_destination) == (source + count, destination + count):
            count += 1
            continue
        if count:
            yield source, destination, count
        source, destination, count = next_source, next_destination, 1
    if count:
        yield source, destination, count


def id_tensor(block_ids: Sequence[int], device: torch.device) -> Tensor:
    """int64 ``[ids]`` on ``device``, which is not waited for."""
    is_cuda = device.type == "cuda"
    return torch.tensor(block_ids, dtype=torch.int64, pin_memory=is_cuda).to(device, non_blocking=True)
