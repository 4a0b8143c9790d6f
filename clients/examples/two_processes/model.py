"""The small transformer in plain torch. What it keeps of earlier tokens is its cache's business."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from examples.two_processes.cache import Cache, State
from examples.two_processes.model_config import LayerKind, ModelConfig

Draw: TypeAlias = Callable[..., Tensor]
"""Weights of a shape; its first dimension is what a product sums over."""

ROTARY_BASE = 10_000.0


class Transformer:
    """Weights from a seed, the same on every device.

    Args:
        config: Its sizes.
        seed: Another seed gives other weights.
        device: Where to compute.
    """

    def __init__(self, config: ModelConfig, seed: int, device: str = "cpu") -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            weights = torch.randn(shape, generator=generator) / math.sqrt(shape[0])
            return weights.to(device)

        self.config = config
        self.device = device
        self._embedding = draw(config.vocabulary_size, config.hidden_size) * math.sqrt(config.vocabulary_size)
        self._layers = [
            (
                LinearAttention.drawn(name, config, draw)
                if kind is LayerKind.LINEAR
                else Attention.drawn(
                    name, config, draw, config.sliding_window if kind is LayerKind.SLIDING else None
                ),
                FeedForward.drawn(config, draw),
            )
            for name, kind in config.layer_names()
        ]
        self._unembedding = draw(config.hidden_size, config.vocabulary_size)

    def forward(self, token_ids: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """Hidden states ``[tokens, hidden size]`` of the cache's new tokens; both are int64 ``[tokens]``."""
        hidden = self._embedding[token_ids]
        for mix, feed_forward in self._layers:
            hidden = hidden + mix(_normalised(hidden), positions, cache)
            hidden = hidden + feed_forward(_normalised(hidden))
        return _normalised(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[tokens, vocabulary size]`` of the next tokens."""
        return hidden @ self._unembedding


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention with rotary positions."""

    name: str
    config: ModelConfig
    sliding_window: int | None
    into_queries: Tensor
    into_keys: Tensor
    into_values: Tensor
    out: Tensor

    @classmethod
    def drawn(cls, name: str, config: ModelConfig, draw: Draw, sliding_window: int | None) -> "Attention":
        """A layer with drawn weights."""
        hidden, of_queries = config.hidden_size, config.num_heads * config.head_size
        of_keys = config.num_kv_heads * config.head_size
        weights = draw(hidden, of_queries), draw(hidden, of_keys), draw(hidden, of_keys)
        return cls(name, config, sliding_window, *weights, draw(of_queries, hidden))

    def __call__(self, hidden: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """What each token gathers from those that it sees."""
        queries, keys, values = (
            (hidden @ into).view(len(hidden), -1, self.config.head_size)
            for into in (self.into_queries, self.into_keys, self.into_values)
        )
        mixed = cache.attend(
            self.name, _rotated(queries, positions), _rotated(keys, positions), values, self.sliding_window
        )
        return mixed.flatten(1) @ self.out


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Linear attention with a decay a head, behind a causal convolution a channel."""

    name: str
    config: ModelConfig
    into_channels: Tensor
    kernel: Tensor
    log_decay: Tensor
    out: Tensor

    @classmethod
    def drawn(cls, name: str, config: ModelConfig, draw: Draw) -> "LinearAttention":
        """A layer with drawn weights; half of a state is lost after some 2 to 20 tokens."""
        return cls(
            name,
            config,
            draw(config.hidden_size, config.num_channels),
            draw(config.convolution_width, config.num_channels),
            -(0.03 + 0.3 * draw(1, config.num_linear_heads)[0].sigmoid()),
            draw(config.num_linear_heads * config.linear_head_size, config.hidden_size),
        )

    def __call__(self, hidden: Tensor, positions: Tensor, cache: Cache) -> Tensor:  # noqa: ARG002 - the order says it
        """What each token reads from the state after it."""
        return cache.recur(self.name, hidden @ self.into_channels, self._advance) @ self.out

    def _advance(self, inputs: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Unroll the recurrence over the tokens of this call. See `examples.two_processes.cache.Advance`.

        With a head's decay d, query q, key k and value v:

            S[t] = d S[t-1] + k[t] v[t]^T        output[t] = q[t] S[t]
        """
        recent, memory = state or tuple(inputs.new_zeros(shape) for shape in self.config.state_shapes)
        num_tokens = len(inputs)
        seen = torch.cat([recent, inputs])
        mixed = functional.silu(
            sum(
                (seen[place : place + num_tokens] * weights for place, weights in enumerate(self.kernel)),
                start=torch.zeros_like(inputs),
            )
        )
        by_head = mixed.view(num_tokens, 3, self.config.num_linear_heads, -1)
        queries, keys, values = by_head.permute(1, 2, 0, 3)  # [heads, tokens, head size] each
        queries, keys = functional.normalize(queries, dim=-1), functional.normalize(keys, dim=-1)
        age = torch.arange(num_tokens, device=inputs.device)
        decay = (self.log_decay[:, None, None] * (age[:, None] - age).clamp(min=0)).exp().tril()
        since = (self.log_decay[:, None] * (age + 1)).exp()[..., None]  # of what was there before
        outputs = (queries @ keys.mT * decay) @ values + since * (queries @ memory)
        memory = since[:, -1:] * memory + (keys * decay[:, -1, :, None]).mT @ values
        return outputs.transpose(0, 1).flatten(1), (seen[num_tokens:], memory)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A gated feed-forward layer."""

    gate: Tensor
    up: Tensor
    down: Tensor

    @classmethod
    def drawn(cls, config: ModelConfig, draw: Draw) -> "FeedForward":
        """A layer with drawn weights."""
        outer, inner = config.hidden_size, 2 * config.hidden_size
        return cls(draw(outer, inner), draw(outer, inner), draw(inner, outer))

    def __call__(self, hidden: Tensor) -> Tensor:
        """Token by token."""
        return (functional.silu(hidden @ self.gate) * (hidden @ self.up)) @ self.down


def _normalised(hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, hidden.shape[-1:])


def _rotated(heads: Tensor, positions: Tensor) -> Tensor:
    """Pairs of elements, turned by their token's position, ``[tokens, heads, head size]``."""
    half = heads.shape[-1] // 2
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=heads.device) / half)
    angles = (positions[:, None] * frequencies)[:, None]
    first, second = heads.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
