"""Hidden-state layers beside groups of one page size: a group each, its blocks cut to the common page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.grouping.one_page_size import common_page_bytes
from blockyard.planning.groups import Group
from blockyard.planning.layers import HiddenState, Layer


def with_hidden_states(groups: Sequence[Group], hidden: Mapping[str, HiddenState]) -> list[Group]:
    """``groups``, and one for each of the ``hidden`` layers, all of one page size.

    Where a token's hidden states are larger than a page, as tensor parallelism makes pages small, all blocks
    grow. A hidden block's tokens divide the other groups' blocks, so that hits can still end at any of these.
    """
    if not hidden:
        return list(groups)
    page_bytes = common_page_bytes(groups)
    scale = max(1, div_ceil(max(map(_token_bytes, hidden.values())), page_bytes))
    page_bytes *= scale
    grown = [_grow(group, scale) for group in groups]
    block_size = math.gcd(*(group.form.block_size for group in grown))
    cut = {
        name: layer.but(
            block_size=largest_divisor(block_size, at_most=page_bytes // _token_bytes(layer)),
            page_size_padded=page_bytes,
        )
        for name, layer in hidden.items()
    }
    return [*grown, *(Group.of({name: layer}) for name, layer in cut.items())]


def largest_divisor(value: int, *, at_most: int) -> int:
    """The largest divisor of ``value`` that is at most ``at_most``; both at least 1. O(sqrt(value))."""
    small = [size for size in range(1, math.isqrt(value) + 1) if value % size == 0]
    return max(size for low in small for size in (low, value // low) if size <= at_most)


def _token_bytes(layer: HiddenState) -> int:
    return layer.num_heads * layer.state_bytes


def _grow(group: Group, scale: int) -> Group:
    if scale == 1:
        return group
    grown = Group.merged({name: _grow_layer(layer, scale) for name, layer in group.layers.items()})
    return replace(grown, is_draft=group.is_draft)


def _grow_layer(layer: Layer, scale: int) -> Layer:
    grown = layer.but(block_size=layer.block_size * scale, page_size_padded=None)
    return grown.with_page(layer.page_bytes * scale)
