"""The worker's cache: a batch of sequences, each seen through its block tables."""

from collections.abc import Sequence

import torch
from torch import Tensor

from blockyard.worker import BlockMemory, BlockTables, slot_mappings
from blockyard.worker.paged_attention import paged_attention, write_kv
from examples.two_processes.cache import Advance, State
from examples.two_processes.messages import Batch, Chunk


class PagedCache:
    """The sequences of one batch. See `examples.two_processes.cache.Cache`.

    Args:
        memory: Where the blocks are.
        tables: One a group, to be filled.
        batch: Its tokens stand behind each other, chunk by chunk. Its copies are made before.

    Attributes:
        token_ids: int64 ``[tokens]``, on the memory's device.
        positions: Likewise, of each token in its sequence.
    """

    def __init__(self, memory: BlockMemory, tables: Sequence[BlockTables], batch: Batch) -> None:
        self._memory = memory
        self._chunks = batch.chunks
        self._lengths = [len(chunk.token_ids) for chunk in batch.chunks]
        lengths = torch.tensor(self._lengths)
        sequences = torch.arange(len(lengths)).repeat_interleave(lengths).to(memory.device)
        self.token_ids = torch.tensor(
            [token for chunk in batch.chunks for token in chunk.token_ids], device=memory.device
        )
        self.positions = torch.cat(
            [torch.arange(chunk.num_computed_tokens, chunk.num_tokens) for chunk in batch.chunks]
        ).to(memory.device)
        for group, table in enumerate(tables):
            table.fill([chunk.block_tables[group] for chunk in batch.chunks])
        self._tables = [table.commit()[: len(lengths)] for table in tables]
        self._slots = slot_mappings(
            self._tables, sequences, self.positions, [group.block_size for group in memory.map.groups]
        )

    def attend(
        self, layer: str, queries: Tensor, keys: Tensor, values: Tensor, sliding_window: int | None
    ) -> Tensor:
        """See `examples.two_processes.cache.Cache.attend`."""
        group, cache = self._memory.map.layers[layer].group, self._memory.layers[layer]
        write_kv(cache, keys, values, self._slots[group])
        return torch.cat(
            [
                paged_attention(own, cache, table, chunk.num_tokens, sliding_window=sliding_window)
                for own, table, chunk in zip(
                    torch.split(queries, self._lengths), self._tables[group], self._chunks, strict=True
                )
            ]
        )

    def recur(self, layer: str, inputs: Tensor, advance: Advance) -> Tensor:
        """See `examples.two_processes.cache.Cache.recur`."""
        outputs = []
        for chunk, own in zip(self._chunks, torch.split(inputs, self._lengths), strict=True):
            output, state = advance(own, self._state_before(layer, chunk))
            self._keep(layer, chunk, state)
            outputs.append(output)
        return torch.cat(outputs)

    def _state_before(self, layer: str, chunk: Chunk) -> State | None:
        """The state after the tokens computed so far: in the block that the last of them falls into."""
        if chunk.num_computed_tokens == 0:
            return None
        block = self._block_of(layer, chunk, chunk.num_computed_tokens - 1)
        return tuple(part[block].clone() for part in self._state_parts(layer))

    def _keep(self, layer: str, chunk: Chunk, state: State) -> None:
        """Write the state after the chunk, likewise."""
        block = self._block_of(layer, chunk, chunk.num_tokens - 1)
        for part, values in zip(self._state_parts(layer), state, strict=True):
            part[block] = values

    def _block_of(self, layer: str, chunk: Chunk, position: int) -> int:
        group = self._memory.map.layers[layer].group
        return chunk.block_tables[group][position // self._memory.map.groups[group].block_size]

    def _state_parts(self, layer: str) -> list[Tensor]:
        """``[blocks, *shape]`` each: a block has one head, and of it one state."""
        cache = self._memory.layers[layer]
        return [cache.part(part.name)[:, 0, 0] for part in cache.view.parts]
