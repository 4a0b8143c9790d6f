"""The small models, and what each of their layers asks of a plan. Known without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class LayerKind(Enum):
    """How a layer mixes tokens."""

    FULL = "full"
    """Attention to all tokens before."""
    SLIDING = "sliding"
    """Attention to the last ones."""
    LINEAR = "linear"
    """Linear attention: a state of fixed size that decays, behind a short causal convolution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer whose weights are drawn from a seed.

    Attributes:
        layers: From the first to the last.
        hidden_size: Elements of a token between the layers.
        num_heads: Query heads of an attention layer; each `num_heads` / `num_kv_heads` share a KV head.
        sliding_window: Tokens that a token of a sliding layer sees, itself included.
        num_linear_heads: Heads of a linear layer, each with a state of its own.
        convolution_width: Tokens that the convolution of a linear layer sees.
        block_size: Tokens a block of attention layers.
        state_block_size: Tokens from one kept state of linear layers to the next.
    """

    layers: tuple[LayerKind, ...]
    vocabulary_size: int = 128
    hidden_size: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    sliding_window: int = 20
    num_linear_heads: int = 2
    linear_head_size: int = 12
    convolution_width: int = 4
    block_size: int = 8
    state_block_size: int = 16

    @property
    def num_channels(self) -> int:
        """Queries, keys and values of a linear layer's heads, as its convolution takes them."""
        return 3 * self.num_linear_heads * self.linear_head_size

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a linear layer: the last inputs of its convolution, and the decaying sum of its heads."""
        size = self.linear_head_size
        return (self.convolution_width - 1, self.num_channels), (self.num_linear_heads, size, size)

    def layer_names(self) -> list[tuple[str, LayerKind]]:
        """Names in the plan and in the worker's memory."""
        return [(f"layers.{number}.{kind.value}", kind) for number, kind in enumerate(self.layers)]

    def layer_specs(self) -> dict[str, dict[str, Any]]:
        """Layers as ``POST /v1/plans`` takes them."""
        attention = {
            "block_size": self.block_size,
            "num_kv_heads": self.num_kv_heads,
            "head_size": self.head_size,
            "dtype": "float32",
        }
        specs: dict[LayerKind, dict[str, Any]] = {
            LayerKind.FULL: {"kind": "full_attention", **attention},
            LayerKind.SLIDING: {
                "kind": "sliding_window",
                "sliding_window": self.sliding_window,
                **attention,
            },
            LayerKind.LINEAR: {
                "kind": "mamba",
                "block_size": self.state_block_size,
                "shapes": [list(shape) for shape in self.state_shapes],
                "dtypes": ["float32", "float32"],
                "mamba_cache_mode": "align",
            },
        }
        return {name: specs[kind] for name, kind in self.layer_names()}

    def plan(
        self, *, num_blocks: int, layout: str, max_model_len: int, max_in_flight_tokens: int
    ) -> dict[str, Any]:
        """A request for a plan of ``num_blocks`` blocks on one worker."""
        return {
            # The blocks are counted, not measured: so the memory only has to be enough.
            "workers": [{"available_memory_bytes": 1 << 30, "layers": self.layer_specs()}],
            "num_blocks_override": num_blocks,
            "layout": layout,
            "max_model_len": max_model_len,
            "max_in_flight_tokens": max_in_flight_tokens,
            "mamba_cache_mode": "align",
        }


MODELS: Mapping[str, ModelConfig] = {
    "windows": ModelConfig(layers=(LayerKind.FULL, LayerKind.SLIDING) * 2),
    "hybrid": ModelConfig(layers=(LayerKind.FULL, LayerKind.LINEAR, LayerKind.SLIDING) * 2),
    "recurrent": ModelConfig(layers=(LayerKind.FULL, LayerKind.LINEAR) * 2),
}
"""By name. Of ``recurrent``, hits end inside the blocks of states, which are copied then."""
