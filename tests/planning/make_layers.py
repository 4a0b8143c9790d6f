"""Layers and plans of small models.

Unless sizes are given, a block has 16 tokens, and a page of `make_full`, `make_window`, `make_chunked` and
`make_mamba` has 16 KiB: so layers differ in their kind alone.
"""

from collections.abc import Sequence
from typing import Any

from blockyard.planning.groups import Group, Layers
from blockyard.planning.layers import (
    ChunkedLocalAttention,
    FullAttention,
    HiddenState,
    Layer,
    Mamba,
    MlaAttention,
    SlidingWindow,
    SlidingWindowMla,
)
from blockyard.planning.placement import Slot, Tensor
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest, Rank

PAGE_BYTES = 16 * 2 * (64 + 64) * 4
"""16 tokens, 2 heads, 64 elements a key and a value, 4 bytes each: 16 KiB."""

AMPLE_BYTES = 2**34

_ATTENTION = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": "float32"}
_LATENT = {"block_size": 16, "num_kv_heads": 1, "head_size": 576, "dtype": "float32"}


def make_full(**sizes: Any) -> FullAttention:
    return FullAttention(**{**_ATTENTION, **sizes})


def make_window(**sizes: Any) -> SlidingWindow:
    return SlidingWindow(**{**_ATTENTION, "sliding_window": 1, **sizes})


def make_chunked(**sizes: Any) -> ChunkedLocalAttention:
    return ChunkedLocalAttention(**{**_ATTENTION, "attention_chunk_size": 4, **sizes})


def make_mla(**sizes: Any) -> MlaAttention:
    """512 latent elements and 64 rotary ones a token, kept whole by every tensor-parallel rank."""
    return MlaAttention(**{**_LATENT, "max_tp_shards": 1, **sizes})


def make_window_mla(**sizes: Any) -> SlidingWindowMla:
    return SlidingWindowMla(**{**_LATENT, "max_tp_shards": 1, "sliding_window": 128, **sizes})


def make_indexer(**sizes: Any) -> MlaAttention:
    """The small cache beside an MLA layer: 132 bytes a token."""
    return MlaAttention(**{**_LATENT, "head_size": 132, "dtype": "uint8", **sizes})


def make_mamba(**sizes: Any) -> Mamba:
    """A state of 1,024 and 3,072 elements, and two more of them for drafts."""
    state = {"shapes": ((2, 512), (3, 32, 32)), "dtypes": ("float32", "float32")}
    return Mamba(**{"block_size": 16, "num_speculative_blocks": 2, **state, **sizes})


def make_hidden(**sizes: Any) -> HiddenState:
    return HiddenState(**{**_LATENT, "num_kv_heads": 3, "head_size": 1024, "dtype": "bfloat16", **sizes})


def make_request(
    *ranks: Layers, available_bytes: int | Sequence[int] = AMPLE_BYTES, **asked: Any
) -> PlanRequest:
    """A request for a short model, its memory the same on every rank unless given one by one."""
    if isinstance(available_bytes, int):
        available_bytes = [available_bytes] * len(ranks)
    pairs = zip(ranks, available_bytes, strict=True)
    memory = [Rank(available_bytes=num_bytes, layers=layers) for layers, num_bytes in pairs]
    return PlanRequest(**{"ranks": memory, "max_model_len": 16, **asked})


def make_plan(*ranks: Layers, **asked: Any) -> Plan:
    return plan(make_request(*ranks, **asked))


def groups_of(plan: Plan, rank: int = 0) -> Sequence[Group]:
    return plan.ranks[rank].placement.groups


def names_of(plan: Plan, rank: int = 0) -> list[list[str]]:
    """The layers of each group."""
    return [list(group.layers) for group in groups_of(plan, rank)]


def layer_of(plan: Plan, name: str) -> Layer:
    """The layer of ``name`` as it is planned."""
    return next(group.layers[name] for group in plan.grouping.groups if name in group.layers)


def tensors_of(plan: Plan, rank: int = 0) -> list[Tensor]:
    return [tensor for tensor in plan.ranks[rank].tensors if isinstance(tensor, Tensor)]


def tensor_of(plan: Plan, name: str, rank: int = 0) -> Tensor:
    """The tensor that the layer of ``name`` is in."""
    return next(tensor for tensor in tensors_of(plan, rank) if name in tensor.layers)


def offset_of(plan: Plan, name: str, rank: int = 0) -> int:
    """Of the first byte of the layer's block 0."""
    tensor = tensor_of(plan, name, rank)
    return tensor.offset + list(tensor.layers).index(name) * tensor.layer_stride


def slots_of(plan: Plan, rank: int = 0) -> list[Slot]:
    return [slot for slot in plan.ranks[rank].tensors if isinstance(slot, Slot)]


def bytes_per_block(plan: Plan, rank: int = 0) -> int:
    return plan.ranks[rank].placement.bytes_per_block
