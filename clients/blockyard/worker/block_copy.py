"""Zeroing blocks, and copying some to others.

Blocks come as the views ``[regions, blocks, words]`` of `blockyard.worker.regions`. On a CPU, blocks that
follow each other are one slice, which moves as fast as memory does. On CUDA, blocks are indexed, on the
current stream, and nothing is waited for.
"""

from collections.abc import Sequence

from torch import Tensor

from blockyard.worker.block_ids import (
    BlockIds,
    Copies,
    Copy,
    checked_copies,
    checked_destinations,
    id_tensor,
    runs,
)

MAX_STAGING_BYTES = 64 * 2**20
"""Of blocks on their way from one place on a CUDA device to another; one block at least."""


def zero_blocks(words: Sequence[Tensor], block_ids: BlockIds, num_blocks: int) -> None:
    """Zero the blocks of ``block_ids``, of ``num_blocks``, in each of ``words``.

    Raises:
        InvalidRequest: See `checked_destinations`; nothing was written.
    """
    ids = checked_destinations(block_ids, num_blocks)
    if not ids:
        return
    for view in words:
        if view.is_cuda:
            view.index_fill_(1, id_tensor(ids, view.device), 0)
            continue
        for first, _, count in runs((block, block) for block in ids):
            view[:, first : first + count].zero_()


def copy_blocks(words: Sequence[Tensor], copies: Copies, num_blocks: int) -> None:
    """Copy (source, destination) pairs of blocks, of ``num_blocks``, in each of ``words``.

    Raises:
        InvalidRequest: See `checked_copies`; nothing was written.
    """
    pairs = checked_copies(copies, num_blocks)
    if not pairs:
        return
    for view in words:
        if view.is_cuda:
            _copy_indexed(view, pairs)
            continue
        for source, destination, count in runs(pairs):
            view[:, destination : destination + count].copy_(view[:, source : source + count])


def _copy_indexed(view: Tensor, copies: Sequence[Copy]) -> None:
    ids = id_tensor([block for pair in copies for block in pair], view.device).view(-1, 2)
    block_bytes = view.shape[0] * view.shape[2] * view.itemsize
    num_staged = max(1, MAX_STAGING_BYTES // block_bytes)
    for first in range(0, len(copies), num_staged):
        part = ids[first : first + num_staged]
        view.index_copy_(1, part[:, 1], view.index_select(1, part[:, 0]))
