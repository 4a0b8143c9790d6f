"""A rank's KV cache as tensors, and what is done with its blocks. The only part that needs torch.

`Worker` keeps a rank's place in its pool. `BlockMemory` is the rank's memory, with every layer seen in it.
`BlockTables` and `slot_mapping` are what kernels take block ids as. `blockyard.worker.paged_attention` is a
reference to hold kernels to, and is not exported from here: it is not what a model should serve with.
"""

try:
    import torch as _torch  # noqa: F401 - so that a base install can say what it lacks
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"blockyard.worker needs the package {error.name!r}: pip install 'blockyard[worker]'", name=error.name
    ) from error

from blockyard.worker.block_image import BlockImage
from blockyard.worker.block_tables import BlockTables
from blockyard.worker.layer_cache import LayerCache
from blockyard.worker.memory import BlockMemory
from blockyard.worker.slot_mapping import slot_mapping, slot_mappings
from blockyard.worker.worker import Worker

__all__ = [
    "BlockImage",
    "BlockMemory",
    "BlockTables",
    "LayerCache",
    "Worker",
    "slot_mapping",
    "slot_mappings",
]
