"""Windowed layers allocated like full attention: blocks for all tokens, none dropped behind the window.

What the layers compute does not change. It costs memory, and gives all layers one block table.
"""

from blockyard.planning.errors import CannotUnifyHybrid
from blockyard.planning.groups import Layers, can_merge, can_share_table
from blockyard.planning.layers import (
    AttentionLayer,
    ChunkedLocalAttention,
    FullAttention,
    HiddenState,
    Layer,
    MlaAttention,
    SlidingWindow,
    SlidingWindowMla,
)


def promote_all(layers: Layers, warnings: list[str]) -> Layers:
    """``layers`` as one kind, those that every decode-context rank keeps whole apart from the others.

    Raises:
        CannotUnifyHybrid: They are of kinds that cannot be.
    """
    promoted = dict(layers)
    for whole in (False, True):
        part = {name: layer for name, layer in layers.items() if _kept_whole(layer) is whole}
        promoted.update(_promote(part) if part else {})
    if promoted != layers:
        warnings.append(
            "hybrid groups are off: windowed layers keep blocks for all tokens, as full attention does; "
            "what they compute is unchanged"
        )
    return promoted


def all_full_allocation(layers: Layers) -> Layers | None:
    """``layers`` with sliding windows allocated like full attention, to stand in one group beside MLA layers.

    None where that does not help: without both kinds, or with others whose blocks are not like theirs.
    """
    kept = (HiddenState, SlidingWindowMla, ChunkedLocalAttention)
    if any(isinstance(layer, kept) for layer in layers.values()):
        return None
    for kind in (MlaAttention, SlidingWindow):
        if not any(isinstance(layer, kind) for layer in layers.values()):
            return None
    try:
        promoted = _promote(layers)
    except CannotUnifyHybrid:
        return None
    return promoted if can_share_table(promoted) else None


def _kept_whole(layer: Layer) -> bool:
    return isinstance(layer, AttentionLayer) and not layer.dcp_sharded


def _promote(layers: Layers) -> Layers:
    if _is_one_kind(layers):
        return layers
    full = [layer for layer in layers.values() if isinstance(layer, FullAttention)]
    if full:
        block_sizes = {layer.block_size for layer in full}
        block_size = block_sizes.pop() if len(block_sizes) == 1 else None
        layers = {name: _as_full(layer, block_size) for name, layer in layers.items()}
    if not _is_one_kind(layers):
        kinds = sorted({layer.kind for layer in layers.values()})
        raise CannotUnifyHybrid(
            f"layers of kinds {', '.join(kinds)} cannot be allocated as one: leave hybrid_groups on",
            {"kinds": kinds},
        )
    return layers


def _is_one_kind(layers: Layers) -> bool:
    return can_merge(list(layers.values())) or can_share_table(layers)


def _as_full(layer: Layer, block_size: int | None) -> Layer:
    """``layer`` as full attention if it has a window; ``block_size`` in tokens, its own for None."""
    if not isinstance(layer, (SlidingWindow, ChunkedLocalAttention)):
        return layer
    size = block_size or layer.block_size
    padded = layer.page_size_padded
    if padded is not None:
        padded = max(padded, layer.content_bytes * size // layer.block_size)
    kind = MlaAttention if isinstance(layer, SlidingWindowMla) else FullAttention
    return layer.as_kind(kind, block_size=size, page_size_padded=padded)
