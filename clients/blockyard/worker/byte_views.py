"""Views of one allocation of bytes, at offsets and strides that are counted in bytes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from blockyard.worker.dtypes import WORDS


def fits(dtype: torch.dtype, *distances_bytes: int) -> bool:
    """Whether an element of ``dtype`` divides each of the distances."""
    return all(distance % dtype.itemsize == 0 for distance in distances_bytes)


def strided_view(
    backing: Tensor,
    dtype: torch.dtype,
    *,
    offset_bytes: int,
    shape: Sequence[int],
    strides_bytes: Sequence[int],
) -> Tensor:
    """Elements of ``dtype`` in ``backing``, uint8 ``[bytes]``; all distances are multiples of an element."""
    size = dtype.itemsize
    assert fits(dtype, offset_bytes, *strides_bytes), "an element begins between two"
    # Bytes behind the last whole element are cut off, for `view` wants none; bounds are the allocation's.
    elements = backing[: backing.numel() // size * size].view(dtype)
    return elements.as_strided(
        list(shape), [stride // size for stride in strides_bytes], offset_bytes // size
    )


def word_view(
    backing: Tensor, *, offset_bytes: int, shape: Sequence[int], strides_bytes: Sequence[int]
) -> Tensor:
    """Bytes, the last dimension's side by side, as the widest words that divide all distances.

    Moving words takes a fraction of the time of moving as many bytes.

    Args:
        backing: uint8 ``[bytes]``.
        offset_bytes: Of the first.
        shape: Counts, the last in bytes.
        strides_bytes: The last is 1.
    """
    *counts, num_bytes = shape
    *strides, _ = strides_bytes
    dtype = next(word for word in WORDS if fits(word, offset_bytes, num_bytes, *strides))
    return strided_view(
        backing,
        dtype,
        offset_bytes=offset_bytes,
        shape=[*counts, num_bytes // dtype.itemsize],
        strides_bytes=[*strides, dtype.itemsize],
    )
