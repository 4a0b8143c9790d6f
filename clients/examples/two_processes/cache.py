"""What a model asks of its cache. The same model code runs on one contiguous cache and on blocks."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from torch import Tensor

State: TypeAlias = tuple[Tensor, ...]
"""What a recurrent layer carries from token to token."""

Advance: TypeAlias = Callable[[Tensor, State | None], tuple[Tensor, State]]
"""From a sequence's new tokens and the state before them (None: the first) to outputs and the state after."""


class Cache(Protocol):
    """Of one or several sequences, whose new tokens stand behind each other in every tensor."""

    def attend(
        self, layer: str, queries: Tensor, keys: Tensor, values: Tensor, sliding_window: int | None
    ) -> Tensor:
        """Keep keys and values of the new tokens, and attend to all of their sequences that they may see.

        Args:
            layer: The layer's name.
            queries: ``[tokens, heads, head size]``.
            keys: ``[tokens, KV heads, head size]``.
            values: As ``keys``.
            sliding_window: Tokens that a token sees, itself included; None for all before it.

        Returns:
            ``[tokens, heads, head size]``.
        """
        ...

    def recur(self, layer: str, inputs: Tensor, advance: Advance) -> Tensor:
        """Run each sequence's new tokens, ``[tokens, channels]``, from its state before to that after them.

        Returns:
            ``[tokens, size of an output]``.
        """
        ...
