"""Groups of pages of several sizes, side by side in a block: what block-outermost layouts allow.

Layers that need the same slots form a bucket. One with as many layers of each page size is a repeated
pattern, such as MLA and its indexer, layer by layer:

    bucket a   [ A | i ] [ A | i ] [ A | i ]      3 repeats of two page sizes
    bucket b   [ W ] [ W ] [ W ] [ W ] [ W ]      5 repeats of one

A bucket of several page sizes stays whole; larger ones are split into groups of about as many repeats, so
that all groups fill a block alike. Buckets of states, which are few a request, are split so far that they do
not widen the block which the others need.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.groups import Group, Layers
from blockyard.planning.layers import CircularBuffer, Layer, Mamba, SlidingWindow
from blockyard.planning.layouts import Layout


@dataclass(frozen=True)
class _Bucket:
    """Layers that need the same slots, in registration order."""

    layers: Layers

    @property
    def form(self) -> Layer:
        return next(iter(self.layers.values()))

    @cached_property
    def by_page(self) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        for name, layer in self.layers.items():
            names.setdefault(layer.page_bytes, []).append(name)
        return names

    @cached_property
    def num_repeats(self) -> int:
        """Layers of the page size that most have."""
        return max(map(len, self.by_page.values()))

    @cached_property
    def is_pattern(self) -> bool:
        """Whether there are as many layers of each page size."""
        return len(set(map(len, self.by_page.values()))) == 1

    def widest_bytes(self, num_groups: int) -> int:
        """Bytes of the largest of ``num_groups`` groups in a block."""
        return sum(div_ceil(len(names), num_groups) * page for page, names in self.by_page.items())

    def split(self, num_groups: int) -> list[Group]:
        """As so many groups, repeat by repeat in turn."""
        repeats = [
            [name for name in repeat if name is not None] for repeat in zip_longest(*self.by_page.values())
        ]
        if num_groups == 1:
            repeats = [list(self.layers)]
        elif num_groups > len(repeats):
            repeats = [[name] for repeat in repeats for name in repeat]
        return [
            Group.of({name: self.layers[name] for repeat in repeats[first::num_groups] for name in repeat})
            for first in range(num_groups)
        ]


def packed_groups(layers: Layers, layout: Layout) -> list[Group] | None:
    """``layers`` as groups whose pages lie side by side in a block.

    None where there is one page size only, or where ``layout`` does not keep a block's pages together.
    """
    if not layout.is_block_outermost or len({layer.page_bytes for layer in layers.values()}) <= 1:
        return None
    buckets = _buckets(layers)
    patterns = [bucket for bucket in buckets if bucket.is_pattern]
    least = max((bucket.num_repeats for bucket in patterns if len(bucket.by_page) > 1), default=0)
    repeats = least_padding([bucket.num_repeats for bucket in patterns], at_least=least) if least else None

    def num_groups(bucket: _Bucket) -> int:
        return div_ceil(bucket.num_repeats, repeats) if repeats and bucket.is_pattern else 1

    def holds_few_blocks(bucket: _Bucket) -> bool:
        kinds = (Mamba, CircularBuffer) if repeats else (Mamba, CircularBuffer, SlidingWindow)
        return isinstance(bucket.form, kinds)

    block_bytes = max(
        b.widest_bytes(len(b.layers) if holds_few_blocks(b) else num_groups(b)) for b in buckets
    )
    groups = []
    for bucket in buckets:
        count = num_groups(bucket)
        if holds_few_blocks(bucket):
            most = len(bucket.layers)
            count = next((n for n in range(count, most) if bucket.widest_bytes(n) <= block_bytes), most)
        groups += bucket.split(count)
    return groups


def least_padding(values: Sequence[int], *, at_least: int) -> int:
    """The size to whose multiples ``values`` are rounded up with the least added; of equals the largest."""
    return min(
        range(at_least, max(*values, at_least) + 1),
        key=lambda size: (sum(-value % size for value in values), -size),
    )


def _buckets(layers: Layers) -> list[_Bucket]:
    buckets: list[dict[str, Layer]] = []
    for name, layer in layers.items():
        for bucket in buckets:
            if next(iter(bucket.values())).can_share_table(layer):
                bucket[name] = layer
                break
        else:
            buckets.append({name: layer})
    return [_Bucket(bucket) for bucket in buckets]
