"""The kinds of layer that the planner knows, by name."""

from blockyard.planning.layers.attention import (
    AttentionLayer,
    ChunkedLocalAttention,
    CircularBuffer,
    CrossAttention,
    EncoderOnlyAttention,
    FullAttention,
    HiddenState,
    KpoolTail,
    MlaAttention,
    SinkFullAttention,
    SlidingWindow,
    SlidingWindowMla,
)
from blockyard.planning.layers.base import MAX_BYTES, CannotMerge, Layer, Workload
from blockyard.planning.layers.mamba import MAMBA_CACHE_MODES, Mamba
from blockyard.planning.layers.quantization import KvQuantMode

LAYER_KINDS: dict[str, type[Layer]] = {
    layer.kind: layer
    for layer in (
        FullAttention,
        MlaAttention,
        SlidingWindow,
        SlidingWindowMla,
        ChunkedLocalAttention,
        Mamba,
        HiddenState,
        SinkFullAttention,
        CircularBuffer,
        KpoolTail,
        CrossAttention,
        EncoderOnlyAttention,
    )
}
"""A class a kind: its fields are what a request may say of such a layer."""

__all__ = [
    "LAYER_KINDS",
    "MAMBA_CACHE_MODES",
    "MAX_BYTES",
    "AttentionLayer",
    "CannotMerge",
    "ChunkedLocalAttention",
    "CircularBuffer",
    "CrossAttention",
    "EncoderOnlyAttention",
    "FullAttention",
    "HiddenState",
    "KpoolTail",
    "KvQuantMode",
    "Layer",
    "Mamba",
    "MlaAttention",
    "SinkFullAttention",
    "SlidingWindow",
    "SlidingWindowMla",
    "Workload",
]
