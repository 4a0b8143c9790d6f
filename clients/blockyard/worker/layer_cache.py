"""One layer's cache as tensors: views of its rank's memory, none with bytes of its own."""

import math
from functools import cached_property

import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.planning.memory_map import LayerView
from blockyard.worker.byte_views import fits, strided_view, word_view
from blockyard.worker.dtypes import TORCH_DTYPES


class LayerCache:
    """The cache of one layer.

    Args:
        name: The layer's.
        view: Where it lies in ``backing``.
        backing: The memory, uint8 ``[bytes]``.

    Attributes:
        name: As given.
        view: As given.
        bytes: uint8 ``[blocks, heads, states, bytes of a state]``.
    """

    def __init__(self, name: str, view: LayerView, backing: Tensor) -> None:
        self.name = name
        self.view = view
        self._backing = backing
        self.bytes = self._elements("a state", torch.uint8, 0, view.shape[-1:])

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""
        return TORCH_DTYPES[self.view.dtype]

    @cached_property
    def content(self) -> Tensor:
        """`bytes` in the layer's dtype: ``[blocks, heads, states, elements of a state]``.

        Raises:
            InvalidRequest: States do not begin at multiples of an element, or do not end there.
        """
        state_bytes = self.view.shape[-1]
        if not fits(self.dtype, state_bytes):
            raise self._unfit("a state", self.dtype, 0)
        return self._elements("a state", self.dtype, 0, (state_bytes // self.dtype.itemsize,))

    @cached_property
    def words(self) -> Tensor:
        """`bytes` as the widest integers that they can be moved in."""
        return word_view(
            self._backing,
            offset_bytes=self.view.offset_bytes,
            shape=self.view.shape,
            strides_bytes=self.view.strides_bytes,
        )

    def part(self, name: str) -> Tensor:
        """``[blocks, heads, states, *shape of the part]`` in the part's dtype.

        Args:
            name: ``key``, ``value``, or ``state.0``, ``state.1``, ... of a recurrent layer.

        Raises:
            InvalidRequest: The layer has no such part, or it begins between two elements.
        """
        for part in self.view.parts:
            if part.name == name:
                return self._elements(name, TORCH_DTYPES[part.dtype], part.offset_bytes, part.shape)
        names = ", ".join(part.name for part in self.view.parts) or "none: its states are packed"
        raise InvalidRequest.of("part", f"layer {self.name!r} has no {name!r}; it has {names}")

    def __repr__(self) -> str:
        num_blocks, num_heads, num_states, num_bytes = self.view.shape
        return (
            f"<LayerCache {self.name!r}, {self.view.dtype}: {num_blocks} blocks, {num_heads} heads, "
            f"{num_states} states of {num_bytes} bytes>"
        )

    def _elements(self, what: str, dtype: torch.dtype, offset_bytes: int, shape: tuple[int, ...]) -> Tensor:
        """Of each state, the array of ``shape`` that begins ``offset_bytes`` in it; row-major."""
        view = self.view
        if not fits(dtype, view.offset_bytes + offset_bytes, *view.strides_bytes[:-1]):
            raise self._unfit(what, dtype, offset_bytes)
        inner = [math.prod(shape[place + 1 :]) * dtype.itemsize for place in range(len(shape))]
        return strided_view(
            self._backing,
            dtype,
            offset_bytes=view.offset_bytes + offset_bytes,
            shape=(*view.shape[:-1], *shape),
            strides_bytes=(*view.strides_bytes[:-1], *inner),
        )

    def _unfit(self, what: str, dtype: torch.dtype, offset_bytes: int) -> InvalidRequest:
        view = self.view
        return InvalidRequest.of(
            "layer",
            f"{what} of {self.name!r} begins at byte {view.offset_bytes + offset_bytes}, its strides are "
            f"{', '.join(map(str, view.strides_bytes[:-1]))} and a state has {view.shape[-1]} bytes: not all "
            f"are multiples of {dtype.itemsize}, an element of {dtype}; only `bytes` can be had",
        )
