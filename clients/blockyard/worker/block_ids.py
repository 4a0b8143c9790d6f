"""Block ids as a caller gives them: checked before anything is written, then taken in runs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK

Copy: TypeAlias = tuple[int, int]
"""The block that is read, and the one that is written."""


def check_sources(block_ids: Iterable[int], num_blocks: int) -> None:
    """Refuse ids that are none of ``num_blocks``.

    Raises:
        InvalidRequest: The first such id.
    """
    for block in block_ids:
        if not 0 <= block < num_blocks:
            raise InvalidRequest.of("block_ids", f"block {block} is out of range: there are {num_blocks}")


def check_destinations(block_ids: Sequence[int], num_blocks: int) -> None:
    """Refuse ids that are not to be written: out of range, the null block, or named twice.

    Raises:
        InvalidRequest: The first such id.
    """
    check_sources(block_ids, num_blocks)
    if NULL_BLOCK in block_ids:
        raise InvalidRequest.of("block_ids", f"block {NULL_BLOCK} is the null block, which is never written")
    if len(set(block_ids)) < len(block_ids):
        twice, _ = Counter(block_ids).most_common(1)[0]
        raise InvalidRequest.of("block_ids", f"block {twice} is written twice")


def check_copies(copies: Sequence[Copy], num_blocks: int) -> None:
    """Refuse copies whose outcome would depend on their order, and ids as the other checks do.

    Raises:
        InvalidRequest: The first such id.
    """
    sources = {source for source, _ in copies}
    check_sources(sources, num_blocks)
    check_destinations([destination for _, destination in copies], num_blocks)
    for _, destination in copies:
        if destination in sources:
            raise InvalidRequest.of("block_ids", f"block {destination} is both copied and written")


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
