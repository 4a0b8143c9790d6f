"""The ordinary cache of one sequence: each layer's keys and values in one tensor. What blocks are held to."""

import torch
from torch import Tensor
from torch.nn import functional

from examples.two_processes.cache import Advance, State


class ContiguousCache:
    """One sequence, from its first token on. See `examples.two_processes.cache.Cache`."""

    def __init__(self) -> None:
        self._keys: dict[str, Tensor] = {}
        self._values: dict[str, Tensor] = {}
        self._states: dict[str, State] = {}

    def attend(
        self, layer: str, queries: Tensor, keys: Tensor, values: Tensor, sliding_window: int | None
    ) -> Tensor:
        """See `examples.two_processes.cache.Cache.attend`."""
        if layer in self._keys:
            keys = torch.cat([self._keys[layer], keys])
            values = torch.cat([self._values[layer], values])
        self._keys[layer], self._values[layer] = keys, values
        places = torch.arange(len(keys), device=keys.device)
        distances = places[len(keys) - len(queries) :, None] - places
        is_visible = distances >= 0
        if sliding_window is not None:
            is_visible &= distances < sliding_window
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1),
            keys.transpose(0, 1),
            values.transpose(0, 1),
            attn_mask=is_visible,
            enable_gqa=True,
        )
        return mixed.transpose(0, 1)

    def recur(self, layer: str, inputs: Tensor, advance: Advance) -> Tensor:
        """See `examples.two_processes.cache.Cache.recur`."""
        outputs, self._states[layer] = advance(inputs, self._states.get(layer))
        return outputs
