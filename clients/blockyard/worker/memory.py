"""A rank's memory: one allocation for the device, one for the host, and every layer seen in them.

Ids are the pool's. Block 0, the null block, is read as any other and never written. All operations check
what they are given before they write the first byte; on CUDA they run on the current stream.
"""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.planning.memory_map import MemoryMap
from blockyard.worker.block_copy import copy_blocks, zero_blocks
from blockyard.worker.block_ids import BlockIds, Copies
from blockyard.worker.block_image import BlockImage, export_blocks, import_blocks
from blockyard.worker.gather import gather_tokens
from blockyard.worker.host_memory import host_bytes
from blockyard.worker.layer_cache import LayerCache
from blockyard.worker.regions import block_words


class BlockMemory:
    """The memory of one rank, zeroed.

    Args:
        memory_map: The rank's; see `blockyard.planning.memory_map`.
        device: ``cpu``, ``cuda``, ``cuda:1``, ..., or ``meta``, which has no bytes: for plans of any size.

    Attributes:
        map: As given.
        device: As given.
        backing: uint8 ``[device_bytes]`` on ``device``.
        host_backing: uint8 ``[host_bytes]`` in the host's memory, pinned beside a CUDA device.
        layers: By name.

    Raises:
        torch.OutOfMemoryError: The device has less. On a CPU, memory is taken as it is written.
    """

    def __init__(self, memory_map: MemoryMap, device: str | torch.device = "cpu") -> None:
        self.map = memory_map
        self.device = torch.device(device)
        self.backing = torch.zeros(memory_map.device_bytes, dtype=torch.uint8, device=self.device)
        if self.device.type == "meta":
            self.host_backing = self.backing.new_zeros(memory_map.host_bytes)
        else:
            self.host_backing = host_bytes(memory_map.host_bytes, pinned=self.backing.is_cuda)
        self.layers: Mapping[str, LayerCache] = MappingProxyType(
            {
                name: LayerCache(name, view, self._backing(on_host=view.host_resident))
                for name, view in memory_map.layers.items()
            }
        )
        self._words: dict[int | None, list[Tensor]] = {}

    def zero(self, block_ids: BlockIds, group: int | None = None) -> None:
        """Zero all that layers keep in these blocks; padding is left.

        Args:
            block_ids: Integers, each once.
            group: Whose bytes of a block; None for those of all groups on the device.

        Raises:
            InvalidRequest: An id is no integer, out of range, the null block's, or named twice, or there is
                no such group. Nothing was written.
        """
        zero_blocks(self._block_words(group), block_ids, self._num_blocks(group))

    def copy(self, copies: Copies, group: int | None = None) -> None:
        """Copy blocks, each pair's first to its second; a block may be copied more than once.

        Args:
            copies: (source, destination) pairs.
            group: As for `zero`.

        Raises:
            InvalidRequest: As for `zero`, of the destinations; or something is no pair, or a source is no
                integer, out of range or also a destination. Nothing was written.
        """
        copy_blocks(self._block_words(group), copies, self._num_blocks(group))

    def export(self, block_ids: BlockIds, group: int) -> BlockImage:
        """Copy blocks of a group to the host's memory; waits for it.

        Raises:
            InvalidRequest: An id is no integer or out of range, there is no such group, or it has no layers
                here.
        """
        return export_blocks(self._caches(group), block_ids, self._num_blocks(group))

    def load(self, image: BlockImage, block_ids: BlockIds) -> None:
        """Write an image's blocks to these, of the group that has its layers; waits for it.

        Raises:
            InvalidRequest: No group has just the image's layers, or see `import_blocks`. Nothing was written.
        """
        group = self._group_with(image.layers)
        import_blocks(self._caches(group), image, block_ids, self._num_blocks(group))

    def gather(self, layer: str, block_ids: BlockIds, num_tokens: int) -> Tensor:
        """A copy of what an attention layer keeps of a sequence, ``[num_tokens, heads, elements]``.

        Args:
            layer: Its name.
            block_ids: The sequence's block table in the layer's group; see `gather_tokens`.
            num_tokens: The sequence's first ones.

        Raises:
            InvalidRequest: There is no such layer, or see `gather_tokens`.
        """
        cache = self.layers.get(layer)
        if cache is None:
            raise InvalidRequest.of("layer", f"there is no {layer!r} on this rank")
        block_size = self.map.groups[cache.view.group].block_size
        return gather_tokens(cache, block_ids, num_tokens, block_size=block_size)

    def __repr__(self) -> str:
        return (
            f"<BlockMemory on {self.device}: {self.map.num_blocks} blocks, {len(self.layers)} layers, "
            f"{self.map.device_bytes} bytes there and {self.map.host_bytes} in the host's memory>"
        )

    def _backing(self, *, on_host: bool) -> Tensor:
        return self.host_backing if on_host else self.backing

    def _on_host(self, group: int | None) -> bool:
        if group is None:
            return False
        if not 0 <= group < len(self.map.groups):
            raise InvalidRequest.of("group", f"{group} is none of the {len(self.map.groups)} groups")
        return self.map.groups[group].host_resident

    def _num_blocks(self, group: int | None) -> int:
        return self.map.num_host_blocks if self._on_host(group) else self.map.num_blocks

    def _block_words(self, group: int | None) -> list[Tensor]:
        """The bytes of every block, as `zero` and `copy` want them; worked out once."""
        backing = self._backing(on_host=self._on_host(group))
        if group not in self._words:
            views = [
                view
                for view in self.map.layers.values()
                if (view.group == group if group is not None else not view.host_resident)
            ]
            self._words[group] = block_words(backing, views, self._num_blocks(group))
        return self._words[group]

    def _caches(self, group: int) -> list[LayerCache]:
        return [cache for cache in self.layers.values() if cache.view.group == group]

    def _group_with(self, names: Mapping[str, Tensor]) -> int:
        groups = {self.layers[name].view.group for name in names if name in self.layers}
        if len(groups) != 1 or not names.keys() <= self.layers.keys():
            raise InvalidRequest.of("image", "no group on this rank has just its layers")
        return groups.pop()
