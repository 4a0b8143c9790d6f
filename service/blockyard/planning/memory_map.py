"""What a worker has to know of its rank's memory: how much there is, and how each layer is seen in it.

These values travel as they are, from the server that has the plan to the worker that has the memory.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from blockyard.planning.dtypes import DTYPE_BYTES
from blockyard.planning.groups import Group
from blockyard.planning.layers import AttentionLayer, Layer, Mamba
from blockyard.planning.layers.quantization import KvQuantMode
from blockyard.planning.layouts import Layout, View
from blockyard.planning.placement import Slot, Tensor, view
from blockyard.planning.planner import Plan

MIXED_DTYPE = "uint8"
"""Of a state whose arrays are of several types, or are not known."""

_UNPACKED = (KvQuantMode.NONE, KvQuantMode.FP8_PER_TENSOR)
"""Modes in which a state is its key and its value, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """One of the arrays that a state of one head is made of.

    Attributes:
        name: ``key``, ``value``, or a recurrent state's ``state.0``, ``state.1``, ...
        dtype: Element type, one of `DTYPE_BYTES`.
        shape: Elements; row-major.
        offset_bytes: From the state's first byte.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    """One layer's cache, ``[blocks, heads, states, bytes of a state]``, in the rank's memory.

    Attributes:
        kind: Of the layer.
        group: Number of its group: of the block table whose entries index its blocks.
        dtype: Element type, one of `DTYPE_BYTES`.
        host_resident: Whether it lies in the host's memory; else in the device's.
        offset_bytes: Of block 0's first byte.
        shape: Counts along the four dimensions.
        strides_bytes: Along them; the last is 1.
        page_size_bytes: Of one block, padding included.
        parts: What a state is made of; nothing where it is packed, and known to the engine alone.
    """

    kind: str
    group: int
    dtype: str
    host_resident: bool
    offset_bytes: int
    shape: tuple[int, int, int, int]
    strides_bytes: tuple[int, int, int, int]
    page_size_bytes: int
    parts: tuple[StatePart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroup:
    """Layers that share a block table.

    Attributes:
        kind: Of its layers.
        block_size: Tokens an entry of the block table stands for.
        host_resident: Whether its block ids are the host's.
    """

    kind: str
    block_size: int
    host_resident: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMap:
    """One rank's memory.

    Attributes:
        num_blocks: Block ids of the device, the null block (0) included.
        num_host_blocks: The same of the host; 0 where no group lies there.
        device_bytes: Of the one allocation that all of the device's layers lie in; 0 for none.
        host_bytes: The same for the host's.
        groups: In the order of a sequence's block tables.
        layers: By name.
    """

    num_blocks: int
    num_host_blocks: int
    device_bytes: int
    host_bytes: int
    groups: tuple[TableGroup, ...]
    layers: Mapping[str, LayerView]


def memory_map(plan: Plan, rank: int) -> MemoryMap:
    """The memory of ``rank``, one of the plan's."""
    share = plan.ranks[rank]
    groups = share.placement.groups
    host_tensors = [tensor for tensor in share.tensors if isinstance(tensor, Tensor) and tensor.host_resident]
    return MemoryMap(
        num_blocks=plan.num_blocks,
        num_host_blocks=plan.host_pool.num_blocks if plan.host_pool else 0,
        device_bytes=share.placement.bytes_per_block * plan.num_blocks,
        host_bytes=max((tensor.size for tensor in host_tensors), default=0),
        groups=tuple(
            TableGroup(
                kind=group.form.kind,
                block_size=group.table_block_size(plan.request.parallel.decode_context),
                host_resident=group.host_resident,
            )
            for group in groups
        ),
        layers=dict(_layer_views(plan, rank)),
    )


def _layer_views(plan: Plan, rank: int) -> Iterator[tuple[str, LayerView]]:
    share = plan.ranks[rank]
    placement = share.placement
    # Slots that several kinds share are dense regions, whatever the layout; so are the host's pages.
    layout = Layout.LBNHC if placement.shares_slots else placement.layout
    tensors = dict(_tensors_by_layer(share.tensors))
    for number, group in enumerate(placement.groups):
        num_blocks = plan.num_blocks
        if group.host_resident:
            assert plan.host_pool is not None, "a group on the host has blocks there"
            num_blocks = plan.host_pool.num_blocks
        for name, layer in group.layers.items():
            if group.derived:
                seen = _derived_view(group, name, num_blocks, placement.bytes_per_block)
            else:
                at = Layout.LBNHC if group.host_resident else layout
                seen = view(tensors[name], name, layer, at, num_blocks)
            yield (
                name,
                LayerView(
                    kind=layer.kind,
                    group=number,
                    dtype=_dtype(layer),
                    host_resident=group.host_resident,
                    offset_bytes=seen.offset,
                    shape=seen.shape,
                    strides_bytes=seen.strides,
                    page_size_bytes=layer.page_bytes,
                    parts=tuple(_parts(layer)),
                ),
            )


def _tensors_by_layer(tensors: Sequence[Tensor] | Sequence[Slot]) -> Iterator[tuple[str, Tensor]]:
    """The tensor that each layer lies in; of a slot, one for each layer that shares it."""
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            yield from dict.fromkeys(tensor.layers, tensor).items()
            continue
        for name in tensor.shared_by:
            alone = Tensor(
                size=tensor.size,
                layers=[name],
                layer_stride=tensor.block_stride,
                block_stride=tensor.block_stride,
                offset=tensor.offset,
            )
            yield name, alone


def _derived_view(group: Group, name: str, num_blocks: int, bytes_per_block: int) -> View:
    """Pages side by side from a block's first byte."""
    page = group.form.page_bytes
    return View(
        offset=list(group.layers).index(name) * page,
        shape=(num_blocks, 1, 1, page),
        strides=(bytes_per_block, page, page, 1),
    )


def _dtype(layer: Layer) -> str:
    if isinstance(layer, AttentionLayer):
        return layer.dtype
    dtypes = {dtype for _, dtype, _ in _arrays(layer)}
    return dtypes.pop() if len(dtypes) == 1 else MIXED_DTYPE


def _parts(layer: Layer) -> Iterator[StatePart]:
    offset = 0
    for name, dtype, shape in _arrays(layer):
        yield StatePart(name=name, dtype=dtype, shape=shape, offset_bytes=offset)
        offset += math.prod(shape) * DTYPE_BYTES[dtype]


def _arrays(layer: Layer) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, element type and shape of what a state is made of."""
    if isinstance(layer, Mamba):
        for number, (shape, dtype) in enumerate(zip(layer.shapes, layer.dtypes, strict=True)):
            yield f"state.{number}", dtype, shape
    elif isinstance(layer, AttentionLayer):
        is_packed = layer.kv_quant_mode not in _UNPACKED or layer.state_content_bytes is not None
        if not is_packed and layer.num_head_slots is None:
            yield "key", layer.dtype, (layer.head_size,)
            if layer.head_size_v:
                yield "value", layer.dtype, (layer.head_size_v,)
