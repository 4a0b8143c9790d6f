"""What a family's reader makes of a configuration: the caches of every hidden layer, on one tensor rank."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.layers import Layer, Mamba
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.fields import ConfigFields

Block = Mapping[str, Layer]
"""One hidden layer's caches, by the module that keeps them, in the order in which engines register them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The caches of a model.

    Attributes:
        blocks: One a hidden layer.
        prefix: What stands before a hidden layer's number in names.
        max_model_len: Tokens of the longest request, where the configuration does not state it.
        max_encoder_tokens: Tokens of the longest encoder input, for a model with an encoder.
        index_topk: Tokens that sparse attention reads, for a model with an indexer.
        remarks: What was not stated, and how it was read.
    """

    blocks: Sequence[Block]
    prefix: str = "model.layers"
    max_model_len: int | None = None
    max_encoder_tokens: int | None = None
    index_topk: int | None = None
    remarks: Sequence[str] = ()

    def layers(self, numbers: range) -> dict[str, Layer]:
        """The caches of the hidden layers in ``numbers``, by full name."""
        return {
            f"{self.prefix}.{number}.{module}": layer
            for number in numbers
            for module, layer in self.blocks[number].items()
        }


Reader = Callable[[ConfigFields, LayerFactory], Architecture]
"""Reads the configurations of one family.

Raises:
    UnsupportedModel: Names the field without which they are not understood.
    InvalidRequest: Names the field that is wrong.
"""


def with_common_pages(blocks: Sequence[Block]) -> list[Block]:
    """``blocks`` with pages of one size, where recurrent layers stand beside attention layers.

    A block of tokens is made as long as it takes for its keys and values to fill a state's page, and the
    state's page is padded up to theirs. Recurrent layers get the same block size, so that block tables of
    both kinds advance together.

        Qwen3-Next-80B   state 1,097,728 bytes, 2,048 bytes a token, kernels of 16 tokens
                         1,097,728 / (16 * 2,048) = 33.5, hence 34 * 16 = 544 tokens, 1,114,112 bytes

    Source: vLLM's ``HybridAttentionMambaModelConfig``.
    """
    distinct = {layer for block in blocks for layer in block.values()}
    states = [layer for layer in distinct if isinstance(layer, Mamba)]
    attention = [layer for layer in distinct if not isinstance(layer, Mamba)]
    if not states or not attention:
        return list(blocks)
    state_bytes = max(layer.content_bytes for layer in states)
    shortest = min(attention, key=lambda layer: layer.page_bytes)
    block_size = shortest.block_size * div_ceil(state_bytes, shortest.page_bytes)
    changed: dict[Layer, Layer] = {layer: layer.but(block_size=block_size) for layer in attention}
    page_bytes = changed[shortest].page_bytes
    for layer in states:
        padded = None if layer.content_bytes == page_bytes else page_bytes
        changed[layer] = layer.but(block_size=block_size, page_size_padded=padded)
    return [{module: changed[layer] for module, layer in block.items()} for block in blocks]
