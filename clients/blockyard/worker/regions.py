"""Which bytes are a block's: of one group, or of all that overlay each other in it.

A region is a run of bytes in block 0, and the same run in every further block, one stride on. What several
layers have side by side is one region, and regions alike are batched, so that few calls move a block:

    LBNHC   layer 0 [ b0 | b1 | ... ]  layer 1 [ b0 | b1 | ... ]     a region a layer, one batch
    BLNHC   b0 [ layer 0 | layer 1 ]   b1 [ layer 0 | layer 1 ]      one region

Padding is in no region, unless it is another layer's content.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from blockyard.planning.memory_map import LayerView
from blockyard.worker.byte_views import word_view


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """Bytes from ``begin`` to ``end`` of the memory are block 0's; block ``b``'s are ``b`` strides on."""

    block_stride: int
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        """Of one block."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Batch:
    """``count`` regions like ``first``, each ``stride`` bytes after the one before."""

    first: Region
    count: int = 1
    stride: int = 0

    def words(self, backing: Tensor, num_blocks: int) -> Tensor:
        """``[regions, blocks, words]``, a view of ``backing``, uint8 ``[bytes]``."""
        return word_view(
            backing,
            offset_bytes=self.first.begin,
            shape=(self.count, num_blocks, self.first.num_bytes),
            strides_bytes=(self.stride, self.first.block_stride, 1),
        )


def block_words(backing: Tensor, layers: Iterable[LayerView], num_blocks: int) -> list[Tensor]:
    """All bytes of the blocks of ``layers``, each once, as views ``[regions, blocks, words]``."""
    regions = merged(region for layer in layers for region in regions_of(layer))
    return [batch.words(backing, num_blocks) for batch in batched(regions)]


def regions_of(layer: LayerView) -> Iterator[Region]:
    """The layer's content, in as few runs as it lies in."""
    _, *counts, num_bytes = layer.shape
    block_stride, *strides, _ = layer.strides_bytes
    apart: list[tuple[int, int]] = []
    for stride, count in sorted(zip(strides, counts, strict=True)):
        if stride == num_bytes or count == 1:
            num_bytes *= count
        else:
            apart.append((stride, count))
    begins = [layer.offset_bytes]
    for stride, count in apart:
        begins = [begin + place * stride for begin in begins for place in range(count)]
    for begin in begins:
        yield Region(block_stride, begin, begin + num_bytes)


def merged(regions: Iterable[Region]) -> list[Region]:
    """The same bytes, with regions that meet or overlay each other as one; by stride, then by place."""
    result: list[Region] = []
    for region in sorted(regions):
        last = result[-1] if result else None
        if last and last.block_stride == region.block_stride and region.begin <= last.end:
            result[-1] = replace(last, end=max(last.end, region.end))
        else:
            result.append(region)
    return result


def batched(regions: Iterable[Region]) -> list[Batch]:
    """Regions of one size and stride, at equal distances, together."""
    result: list[Batch] = []
    for region in sorted(regions, key=lambda each: (each.block_stride, each.num_bytes, each.begin)):
        if result and _continues(result[-1], region):
            last = result[-1]
            distance = last.stride or region.begin - last.first.begin
            result[-1] = Batch(last.first, last.count + 1, distance)
        else:
            result.append(Batch(region))
    return result


def _continues(batch: Batch, region: Region) -> bool:
    first = batch.first
    is_alike = (first.block_stride, first.num_bytes) == (region.block_stride, region.num_bytes)
    return is_alike and (batch.count == 1 or region.begin == first.begin + batch.count * batch.stride)
