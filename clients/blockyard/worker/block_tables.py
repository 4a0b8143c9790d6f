"""Block tables of a batch on the device, kept up to date row by row.

    host      rows of Python's block ids, written at any time
                | what changed, at `commit`
    staging   two pinned buffers in turn, each left alone until its last copy is over
                | without blocking, on the current stream
    device    int32 [sequences, blocks], always the same tensor

On a CPU there is no staging; `commit` is still what makes changes seen.
"""

from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK
from blockyard.worker.block_ids import BlockIds, id_list

MAX_BLOCK_ID = 2**31 - 1
"""Of an int32."""


class BlockTables:
    """The block tables of one group, one row a sequence, padded with the null block.

    Args:
        max_sequences: Rows, at least 1.
        max_blocks: Entries of a row, at least 1.
        device: Where the tables are read.

    Attributes:
        tensor: int32 ``[max_sequences, max_blocks]`` on ``device``, as of the last `commit`.

    Raises:
        InvalidRequest: There would be no row, or no entry.
    """

    def __init__(self, max_sequences: int, max_blocks: int, device: str | torch.device = "cpu") -> None:
        if max_sequences < 1 or max_blocks < 1:
            raise InvalidRequest.of("max_sequences", "there must be at least one row and one entry")
        shape = (max_sequences, max_blocks)
        self.tensor = torch.zeros(shape, dtype=torch.int32, device=device)
        self._rows: NDArray[np.int32] = np.zeros(shape, dtype=np.int32)
        self._lengths = [0] * max_sequences
        self._changed = range(0)
        self._staging = [_Staging(shape), _Staging(shape)] if self.tensor.is_cuda else []

    def length(self, row: int) -> int:
        """Entries of ``row`` that are filled.

        Raises:
            InvalidRequest: There is no such row.
        """
        self._check_row(row)
        return self._lengths[row]

    def fill(self, tables: Iterable[BlockIds]) -> None:
        """Make ``tables`` the first rows, and empty all others.

        Raises:
            InvalidRequest: There are too many, one is too long, or an id is no int32. Nothing was changed.
        """
        entries = [self._entries(table) for table in tables]
        if len(entries) > len(self._lengths):
            raise InvalidRequest.of("tables", f"are {len(entries)}: there are {len(self._lengths)} rows")
        for row, filled in enumerate(entries):
            self._write(row, filled)
        for row in range(len(entries), len(self._lengths)):
            if self._lengths[row]:
                self._write(row, self._entries(()))

    def set_row(self, row: int, block_ids: BlockIds) -> None:
        """Make ``block_ids`` the entries of ``row``; none empties it.

        Raises:
            InvalidRequest: There is no such row, it is too short, or an id is no int32. Nothing was changed.
        """
        self._check_row(row)
        self._write(row, self._entries(block_ids))

    def append(self, row: int, block_ids: BlockIds) -> None:
        """Add entries to ``row``.

        Raises:
            InvalidRequest: As for `set_row`.
        """
        self._check_row(row)
        begin = self._lengths[row]
        self._write(row, self._entries(block_ids, begin), begin)

    def replace(self, row: int, position: int, block_id: SupportsIndex) -> None:
        """Make one entry of ``row`` another block: its sequence has a copy of what it shared with a fork.

        Raises:
            InvalidRequest: There is no such row or entry, or the id is no int32. Nothing was changed.
        """
        self._check_row(row)
        if not 0 <= position < self._lengths[row]:
            raise InvalidRequest.of("position", f"{position} is none of {self._lengths[row]} entries")
        behind = self._rows[row, position + 1 : self._lengths[row]].copy()
        self._write(row, np.concatenate((self._entries((block_id,), position), behind)), position)

    def commit(self) -> Tensor:
        """Send what changed to the device, and return `tensor`.

        On CUDA the host does not wait for the copy, but for the last but one, should that still be under way.
        """
        changed = slice(self._changed.start, self._changed.stop)
        if self._changed and self._staging:
            self._staging.reverse()
            self._staging[0].send(self._rows, self.tensor, changed)
        elif self._changed:
            self.tensor[changed].copy_(torch.from_numpy(self._rows[changed]))
        self._changed = range(0)
        return self.tensor

    def _check_row(self, row: int) -> None:
        if not 0 <= row < len(self._lengths):
            raise InvalidRequest.of("row", f"{row} is none of {len(self._lengths)} rows")

    def _entries(self, block_ids: BlockIds, begin: int = 0) -> NDArray[np.int32]:
        room = self._rows.shape[1] - begin
        ids = id_list(block_ids)
        if len(ids) > room:
            raise InvalidRequest.of("block_ids", f"are {len(ids)}: the row has room for {room}")
        if ids and not (min(ids) >= NULL_BLOCK and max(ids) <= MAX_BLOCK_ID):
            raise InvalidRequest.of("block_ids", f"must be from {NULL_BLOCK} to {MAX_BLOCK_ID}")
        return np.array(ids, dtype=np.int32)

    def _write(self, row: int, entries: NDArray[np.int32], begin: int = 0) -> None:
        """Make ``entries`` those of ``row`` from ``begin`` to its end."""
        end = begin + len(entries)
        self._rows[row, begin:end] = entries
        self._rows[row, end : self._lengths[row]] = NULL_BLOCK
        self._lengths[row] = end
        if self._changed:
            self._changed = range(min(row, self._changed.start), max(row + 1, self._changed.stop))
        else:
            self._changed = range(row, row + 1)


class _Staging:
    """A pinned buffer, and when the device has read it."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._buffer = torch.zeros(shape, dtype=torch.int32, pin_memory=True)
        self._is_read = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's own fault

    def send(self, rows: NDArray[np.int32], tensor: Tensor, changed: slice) -> None:
        """Copy the ``changed`` of ``rows`` to the same of ``tensor``, whole rows: dense on both sides."""
        self._is_read.synchronize()
        self._buffer[changed].copy_(torch.from_numpy(rows[changed]))
        tensor[changed].copy_(self._buffer[changed], non_blocking=True)
        self._is_read.record(torch.cuda.current_stream(tensor.device))
