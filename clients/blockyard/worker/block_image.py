"""Blocks of one group outside of a rank's memory, in an order that no layout or rank has a part in.

A layer's blocks are ``[blocks, heads, states, bytes of a state]``, dense. So what one layout exports, another
imports, on any rank with the same layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from xxhash import xxh3_64

from blockyard.core.errors import InvalidRequest
from blockyard.planning.dtypes import DTYPE_BYTES
from blockyard.worker.block_ids import BlockIds, checked_destinations, checked_sources, id_tensor, runs
from blockyard.worker.image_file import ImageFile, read_image, write_image
from blockyard.worker.layer_cache import LayerCache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BlockImage:
    """Copies of blocks in the host's memory.

    Attributes:
        layers: By name, uint8 ``[blocks, heads, states, bytes of a state]``, dense; pinned where they come
            from a CUDA device.
        dtypes: Of the layers' elements, by the names of `blockyard.planning.dtypes`.
        checksums: One a block, over all layers: their names, dtypes and bytes.
    """

    layers: Mapping[str, Tensor]
    dtypes: Mapping[str, str]
    checksums: tuple[int, ...]

    @property
    def num_blocks(self) -> int:
        """How many there are."""
        return len(self.checksums)

    def __repr__(self) -> str:
        return f"<BlockImage of {self.num_blocks} blocks, {len(self.layers)} layers>"

    def save(self, path: str | Path) -> None:
        """Write a safetensors file that only its owner can read, all of it or nothing.

        Raises:
            OSError: The file cannot be written; ``path`` is as it was.
        """
        write_image(Path(path), ImageFile(self.layers, self.dtypes, self.checksums))

    @classmethod
    def load(cls, path: str | Path, *, pin_memory: bool = False) -> "BlockImage":
        """Read what `save` wrote.

        Args:
            path: The file.
            pin_memory: Whether the image is to be pinned, for a CUDA device.

        Raises:
            OSError: The file cannot be read.
            InvalidRequest: It is no image, is of another version, or has changed since it was saved.
        """
        file = read_image(Path(path), pin_memory=pin_memory)
        image = cls(layers=file.layers, dtypes=file.dtypes, checksums=file.checksums)
        image.verify()
        return image

    def verify(self) -> None:
        """Compare every block with its checksum.

        Raises:
            InvalidRequest: A block differs, or the parts of the image do not fit each other.
        """
        if self.dtypes.keys() != self.layers.keys():
            raise InvalidRequest.of("image", "does not have one dtype a layer")
        for name, dtype in self.dtypes.items():
            if dtype not in DTYPE_BYTES:
                raise InvalidRequest.of("image", f"layer {name!r} is of {dtype!r}, which is no dtype")
        for name, blocks in self.layers.items():
            if blocks.dtype is not torch.uint8 or blocks.dim() != 4 or not blocks.is_contiguous():
                raise InvalidRequest.of(
                    "image", f"layer {name!r} is not dense uint8 [blocks, heads, states, bytes]"
                )
            if blocks.shape[0] != self.num_blocks or blocks.device.type != "cpu":
                raise InvalidRequest.of(
                    "image", f"layer {name!r} is not {self.num_blocks} blocks in the host's memory"
                )
        for number, checksum in enumerate(_checksums(self.layers, self.dtypes, self.num_blocks)):
            if checksum != self.checksums[number]:
                raise InvalidRequest.of(
                    "image", f"block {number} of {self.num_blocks} is not what it was when it was exported"
                )


def _checksums(layers: Mapping[str, Tensor], dtypes: Mapping[str, str], num_blocks: int) -> tuple[int, ...]:
    """xxh3_64 of each block."""
    parts = [
        (f"{name}\0{dtypes[name]}\0{[*blocks.shape[1:]]}\0".encode(), blocks.numpy())
        for name, blocks in sorted(layers.items())
    ]
    result = []
    for block in range(num_blocks):
        digest = xxh3_64()
        for heading, blocks in parts:
            digest.update(heading)
            digest.update(blocks[block])
        result.append(digest.intdigest())
    return tuple(result)


def export_blocks(caches: Sequence[LayerCache], block_ids: BlockIds, num_blocks: int) -> BlockImage:
    """An image of the blocks of ``block_ids``, of ``num_blocks``, as ``caches`` have them; waits for them.

    Raises:
        InvalidRequest: An id is out of range, or there is no layer.
    """
    sources = checked_sources(block_ids, num_blocks)
    if not caches:
        raise InvalidRequest.of("group", "has no layers on this rank")
    layers = {}
    for cache in caches:
        is_cuda = cache.bytes.is_cuda
        shape = (len(sources), *cache.view.shape[1:])
        layers[cache.name] = torch.empty(shape, dtype=torch.uint8, pin_memory=is_cuda)
        words = layers[cache.name].view(cache.words.dtype)
        if is_cuda:
            ids = id_tensor(sources, cache.bytes.device)
            words.copy_(cache.words.index_select(0, ids), non_blocking=True)
            continue
        for number, block, count in runs(enumerate(sources)):
            words[number : number + count].copy_(cache.words[block : block + count])
    _wait_for(caches)
    dtypes = {cache.name: cache.view.dtype for cache in caches}
    return BlockImage(layers=layers, dtypes=dtypes, checksums=_checksums(layers, dtypes, len(sources)))


def import_blocks(
    caches: Sequence[LayerCache], image: BlockImage, block_ids: BlockIds, num_blocks: int
) -> None:
    """Write the blocks of ``image`` to those of ``block_ids``, of ``num_blocks``; waits for it.

    Raises:
        InvalidRequest: An id is not to be written (see `checked_destinations`), there are not as many as the
            image has blocks, or the image has other layers, shapes or dtypes, or differs from its checksums.
            Nothing was written.
    """
    destinations = checked_destinations(block_ids, num_blocks)
    if len(destinations) != image.num_blocks:
        raise InvalidRequest.of(
            "block_ids", f"are {len(destinations)}, and the image has {image.num_blocks} blocks"
        )
    _check_layers(caches, image)
    image.verify()
    all_words = [_words(image.layers[cache.name], cache.words.dtype) for cache in caches]
    for cache, words in zip(caches, all_words, strict=True):
        if cache.bytes.is_cuda:
            device = cache.bytes.device
            cache.words.index_copy_(0, id_tensor(destinations, device), words.to(device, non_blocking=True))
            continue
        for number, block, count in runs(enumerate(destinations)):
            cache.words[block : block + count].copy_(words[number : number + count])
    _wait_for(caches)


def _words(blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """Dense blocks in ``dtype``, whose elements divide a state; copied where they begin between two."""
    flat = blocks.reshape(-1)  # the strides of dimensions of one are anything
    if flat.storage_offset() % dtype.itemsize:
        flat = flat.clone()
    return flat.view(dtype).view(*blocks.shape[:-1], blocks.shape[-1] // dtype.itemsize)


def _check_layers(caches: Sequence[LayerCache], image: BlockImage) -> None:
    wanted = {cache.name: (cache.view.dtype, [*cache.view.shape[1:]]) for cache in caches}
    if image.layers.keys() != wanted.keys():
        other = sorted(image.layers.keys() ^ wanted.keys())
        raise InvalidRequest.of("image", f"has other layers than the group, such as {other[0]!r}")
    for name, blocks in image.layers.items():
        found = (image.dtypes.get(name), [*blocks.shape[1:]])
        if found != wanted[name]:
            raise InvalidRequest.of("image", f"layer {name!r} is {found} in it and {wanted[name]} in memory")


def _wait_for(caches: Sequence[LayerCache]) -> None:
    if caches and caches[0].bytes.is_cuda:
        torch.cuda.current_stream(caches[0].bytes.device).synchronize()
