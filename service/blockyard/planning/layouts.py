"""The order of a KV cache's dimensions in memory, and the strides that follow.

Logically a cache is ``[L, B, H, N, C]``: layer, block, head, state, bytes of one state. A layout names these
from the outermost to the innermost; the bytes of a state always lie together.

    LBNHC   layer 0 [ block 0 | block 1 | ... ]  layer 1 [ block 0 | block 1 | ... ]
    BLNHC   block 0 [ layer 0 | layer 1 | ... ]  block 1 [ layer 0 | layer 1 | ... ]

Source: the six layouts of vLLM's ``KVCacheLayout``.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from blockyard.planning.layers import Layer


@dataclass(frozen=True, slots=True)
class Strides:
    """Bytes from one layer, block, head or state of equal layers to the next."""

    layer: int
    block: int
    head: int
    state: int


class Inexpressible(Exception):
    """The layout does not allow such a page."""


class Layout(StrEnum):
    """A memory layout, by its dimensions from the outermost to the innermost."""

    LBHNC = "LBHNC"
    """A region a layer; in a page, a head's states together."""
    LBNHC = "LBNHC"
    """A region a layer; in a page, a token's heads together."""
    LHBNC = "LHBNC"
    """A region a layer and head."""
    BLHNC = "BLHNC"
    """A region a block, the layers' pages side by side; in a page, a head's states together."""
    BLNHC = "BLNHC"
    """A region a block, the layers' pages side by side; in a page, a token's heads together."""
    BHLNC = "BHLNC"
    """A region a block, and in it one a head."""

    @property
    def is_block_outermost(self) -> bool:
        """Whether all layers' bytes of a block lie together."""
        return self.value[0] == "B"

    @property
    def keeps_pages_whole(self) -> bool:
        """Whether a layer's page of one block lies in one piece."""
        return set(self.value[:2]) == {"L", "B"}

    def strides(
        self,
        layer: Layer,
        *,
        num_layers: int,
        num_blocks: int,
        block_stride: int | None = None,
        layer_stride: int | None = None,
    ) -> Strides:
        """The strides of ``num_layers`` layers like ``layer``, dense but for their pages' padding.

        Args:
            layer: One of them.
            num_layers: At least 1.
            num_blocks: At least 1.
            block_stride: Bytes from block to block, where other layers' pages lie between.
            layer_stride: The same from layer to layer.

        Raises:
            Inexpressible: The page is padded and does not lie in one piece.
        """
        sizes = {
            "L": num_layers,
            "B": num_blocks,
            "H": layer.num_heads,
            "N": layer.num_states,
            "C": layer.state_bytes,
        }
        fixed = {"B": block_stride, "L": layer_stride}
        page_begins = max(self.value.index("L"), self.value.index("B"))
        is_padded = layer.page_bytes != layer.content_bytes
        if is_padded:
            outside = math.prod(sizes[name] for name in self.value[: page_begins + 1])
            if outside != num_layers * num_blocks:
                raise Inexpressible
        stride, strides = 1, {}
        for place, name in reversed(list(enumerate(self.value))):
            if is_padded and place == page_begins:
                stride = max(stride, layer.page_bytes)
            stride = strides[name] = fixed.get(name) or stride
            stride *= sizes[name]
        return Strides(strides["L"], strides["B"], strides["H"], strides["N"])


@dataclass(frozen=True, slots=True)
class View:
    """One layer's cache in a tensor of bytes, as ``[blocks, heads, states, bytes of a state]``.

    Attributes:
        offset: Of the first byte.
        shape: Counts along the four dimensions.
        strides: Bytes along them; the last is 1.
    """

    offset: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
