"""Groups of one page size: every group's layers have equal pages, and groups have as many layers.

10 full-attention layers and 20 of a sliding window, with equal pages, become three groups of 10:

    full 0..9  |  window 0, 2, 4, ...  |  window 1, 3, 5, ...

so that a block of any group has the same size. Layers of a kind go to its groups in turn, not in runs: a
pipeline stage then has a like share of every group.
"""

from collections.abc import Sequence

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.errors import IncompatiblePageSizes
from blockyard.planning.groups import Group, Layers, by_layer, can_merge
from blockyard.planning.layers import Layer

_FEW_MORE = 1.5
"""Up to so many times the layers of the smallest kind, the largest is one group and others are padded."""


_MUCH_EMPTY = 0.1
"""The share of a page that may be padding without a word."""


def to_one_page_size(layers: Layers, warnings: list[str]) -> Layers:
    """``layers`` with pages as large as the largest one; adds to ``warnings`` where much of them stays empty.

    A page grows with its block where that comes out even; else it is padded, where its kind can be.

    Raises:
        IncompatiblePageSizes: Neither is possible.
    """
    pages = {name: layer.page_bytes for name, layer in layers.items()}
    largest = max(pages.values(), default=0)
    unified = {name: _with_page(name, layer, largest, pages) for name, layer in layers.items()}
    for layer in dict.fromkeys(unified.values()):
        empty = 1 - layer.content_bytes / layer.page_bytes
        if empty > _MUCH_EMPTY:
            warnings.append(
                f"pages of {layer.kind} layers hold {layer.content_bytes} of {layer.page_bytes} bytes, "
                f"{empty:.0%} are padding: other block sizes may fit each other better"
            )
    return unified


def _with_page(name: str, layer: Layer, page_bytes: int, pages: dict[str, int]) -> Layer:
    ratio, rest = divmod(page_bytes, layer.page_bytes)
    if ratio == 1 and not rest:
        return layer
    if layer.grows_with_block() and not rest:
        return layer.but(block_size=layer.block_size * ratio, page_size_padded=None).with_page(page_bytes)
    if layer.can_pad_page():
        return layer.but(page_size_padded=page_bytes)
    raise IncompatiblePageSizes(
        f"layer {name!r} has pages of {layer.page_bytes} bytes, which do not divide the largest, "
        f"{page_bytes}, and cannot be padded: choose a block-outermost layout such as BLHNC, or other blocks",
        {"page_size_bytes": pages},
    )


def equal_groups(layers: Layers, warnings: list[str]) -> list[Group]:
    """Groups of ``layers``, whose pages have one size; adds to ``warnings`` what padding wastes."""
    kinds = _mergeable(layers)
    fewest, most = min(map(len, kinds)), max(map(len, kinds))
    group_size = most if most < fewest * _FEW_MORE else fewest
    groups = []
    for names in kinds:
        num_groups = div_ceil(len(names), group_size)
        num_missing = num_groups * group_size - len(names)
        if num_missing:
            warnings.append(
                f"groups of {group_size} layers: the {len(names)} layers like {names[0]!r} are padded by "
                f"{num_missing}, which may waste {num_missing / len(names):.0%} of their memory"
            )
        groups += [
            Group.merged({name: layers[name] for name in names[first::num_groups]})
            for first in range(num_groups)
        ]
    return groups


def _mergeable(layers: Layers) -> list[list[str]]:
    """The names of ``layers`` that one layer can describe, in order of their first."""
    kinds: list[tuple[list[Layer], list[str]]] = []
    for layer, same in by_layer(layers).items():
        for forms, members in kinds:
            if can_merge([*forms, layer]):
                forms.append(layer)
                members.extend(same)
                break
        else:
            kinds.append(([layer], list(same)))
    return [members for _, members in kinds]


def common_page_bytes(groups: Sequence[Group]) -> int:
    """The page size that all layers of ``groups`` have."""
    (page_bytes,) = {group.form.page_bytes for group in groups}
    return page_bytes
