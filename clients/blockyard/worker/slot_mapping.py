"""Where each token of a batch is written: its slot, the block's first slot and the place in the block.

With blocks of 4 tokens and the block table [ 7 | 3 | 0 ], position 6 has slot 3 * 4 + 2 = 14.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest

MAX_BLOCK_SIZE = 2**32
"""Tokens: the last slot of the last of 2**31 blocks is the largest int64."""


def slot_mapping(
    block_table: Tensor,
    sequences: Tensor,
    positions: Tensor,
    block_size: int,
    out: Tensor | None = None,
) -> Tensor:
    """The slot of each token.

    A position behind a row's filled entries gets what stands there: of `BlockTables` the null block, so one
    of the slots from 0 to ``block_size - 1``, which are not to be written.

    Everything is on one device. On CUDA it runs on the current stream, nothing is waited for, and so rows
    and positions are not looked at.

    Args:
        block_table: int32 ``[sequences, blocks]``, entries of a group's block tables.
        sequences: int32 or int64 ``[tokens]``, the row of each token.
        positions: int64 ``[tokens]``, its place in its sequence.
        block_size: Tokens an entry stands for, from 1 to `MAX_BLOCK_SIZE`.
        out: int64 ``[tokens]`` to write to, which may share memory with what is given; a new tensor where it
            is None.

    Returns:
        int64 ``[tokens]``.

    Raises:
        InvalidRequest: A shape, type or device is another; on a CPU, a row or a position is out of range.
            ``out`` is unchanged.
    """
    _check(block_table, sequences, positions, block_size)
    _check_out(out, positions, tuple(positions.shape))
    if out is None:
        out = torch.empty_like(positions)
    places, blocks = _found(block_table, sequences, positions, block_size)
    return torch.add(places, blocks, alpha=block_size, out=out)


def slot_mappings(
    block_tables: Sequence[Tensor],
    sequences: Tensor,
    positions: Tensor,
    block_sizes: Sequence[int],
    out: Tensor | None = None,
) -> Tensor:
    """The slots of each token in every group; see `slot_mapping`.

    Args:
        block_tables: One a group, each as wide as it likes.
        sequences: As there.
        positions: As there.
        block_sizes: One a group.
        out: int64 ``[groups, tokens]`` to write to; it may share memory with what is given.

    Returns:
        int64 ``[groups, tokens]``.

    Raises:
        InvalidRequest: As there, or there are not as many block sizes as block tables.
    """
    if len(block_tables) != len(block_sizes):
        raise InvalidRequest.of("block_sizes", f"give one a block table, {len(block_tables)} in all")
    for block_table, block_size in zip(block_tables, block_sizes, strict=True):
        _check(block_table, sequences, positions, block_size)
    shape = (len(block_tables), *positions.shape)
    _check_out(out, positions, shape)
    if out is None:
        out = positions.new_empty(shape)
    # All is read before the first slot is written: `out` may share memory with what is given.
    found = [
        _found(block_table, sequences, positions, block_size)
        for block_table, block_size in zip(block_tables, block_sizes, strict=True)
    ]
    for (places, blocks), block_size, row in zip(found, block_sizes, out, strict=True):
        torch.add(places, blocks, alpha=block_size, out=row)
    return out


def _found(
    block_table: Tensor, sequences: Tensor, positions: Tensor, block_size: int
) -> tuple[Tensor, Tensor]:
    """Each token's place in its block in 64 bits, so that slots are, and the block: both new tensors."""
    entries = torch.div(positions, block_size, rounding_mode="floor")
    places = positions - entries * block_size
    # One index into the flat table is quicker than a pair.
    index = entries.add_(sequences, alpha=block_table.shape[1])
    return places, block_table.reshape(-1).index_select(0, index)


def _check(block_table: Tensor, sequences: Tensor, positions: Tensor, block_size: int) -> None:
    if not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise InvalidRequest.of("block_size", f"must be from 1 to {MAX_BLOCK_SIZE}")
    if block_table.dtype is not torch.int32 or block_table.dim() != 2:
        raise InvalidRequest.of("block_table", "must be int32 [sequences, blocks]")
    if positions.dtype is not torch.int64 or positions.dim() != 1:
        raise InvalidRequest.of("positions", "must be int64 [tokens]")
    if sequences.dtype not in (torch.int32, torch.int64) or sequences.shape != positions.shape:
        raise InvalidRequest.of("sequences", "must be int32 or int64 [tokens], a row for each position")
    if not block_table.device == sequences.device == positions.device:
        raise InvalidRequest.of("block_table", "must be on one device with sequences and positions")
    if positions.device.type != "cpu" or not positions.numel():
        return
    num_sequences, num_entries = block_table.shape
    if not _is_within(sequences, num_sequences):
        raise InvalidRequest.of("sequences", f"a row is out of range: the table has {num_sequences}")
    if not _is_within(positions, num_entries * block_size):
        raise InvalidRequest.of(
            "positions", f"one is out of range: {num_entries} blocks of {block_size} tokens"
        )


def _check_out(out: Tensor | None, positions: Tensor, shape: tuple[int, ...]) -> None:
    if out is None:
        return
    is_alike = out.dtype is torch.int64 and out.device == positions.device
    if not is_alike or tuple(out.shape) != shape:
        raise InvalidRequest.of("out", f"must be int64 {list(shape)} on the device of positions")


def _is_within(indices: Tensor, end: int) -> bool:
    least, most = indices.aminmax()
    return bool(int(least) >= 0 and int(most) < end)
