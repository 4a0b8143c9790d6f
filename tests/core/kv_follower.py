"""Who follows a pool's events alone: a set of hashes a group, and nothing else is known of the pool."""

from array import array
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from blockyard.core.config import PoolConfig
from blockyard.core.ids import NO_TENANT
from blockyard.core.kv_batch import AllBlocksCleared, Batch, BlockRemoved, BlocksStored, StoredBlock
from blockyard.core.pool import Pool
from blockyard.core.tenant_hash import tenant_hashes
from core.drawn_requests import SHARED_TOKENS, TWO_TENANTS, prompt_tokens

if TYPE_CHECKING:
    from blockyard.core.ids import BlockHash


class KvFollower:
    """Follows a pool of ``config`` whose prompts are those that are drawn; ``coverage`` counts what comes."""

    def __init__(self, config: PoolConfig, coverage: Counter[str]) -> None:
        self._coverage = coverage
        self._hash_block_size = config.hash_block_size
        self._block_sizes = [group.block_size for group in config.groups]
        self._prompts: dict[BlockHash | None, tuple[int, ...]] = {None: ()}
        """The tokens that a hash stands for, from the first on."""
        for prompt in range(len(SHARED_TOKENS)):
            tokens = tuple(prompt_tokens(prompt))
            _, hashes = config.hasher().start().append(tokens)
            for tenant in (NO_TENANT, *TWO_TENANTS):
                for number, block_hash in enumerate(tenant_hashes(hashes, tenant), start=1):
                    self._prompts[block_hash] = tokens[: number * self._hash_block_size]
        self.found: list[set[BlockHash]] = [set() for _ in config.groups]
        self._next_number: int | None = None

    def follow(self, pool: Pool) -> None:
        """Take what there is, and have what the pool has."""
        assert pool.events is not None
        for batch in pool.events.take():
            self._apply(batch)
        assert [set(stored) for stored in pool.events.stored] == self.found

    def _apply(self, batch: Batch) -> None:
        assert self._next_number in (batch.number, None)
        self._next_number = batch.number + 1
        assert batch.events
        for event in batch.events:
            self._coverage[f"event: {type(event).__name__}"] += 1
            match event:
                case BlocksStored(group, blocks):
                    self._store(group, blocks[0])
                    for before, block in pairwise(blocks):
                        assert block.parent_hash == before.block_hash
                        self._store(group, block)
                case BlockRemoved(group, block_hash):
                    self.found[group].remove(block_hash)
                case AllBlocksCleared():
                    for found in self.found:
                        found.clear()

    def _store(self, group: int, block: StoredBlock) -> None:
        assert block.block_hash not in self.found[group]
        self.found[group].add(block.block_hash)
        tokens, before = self._prompts[block.block_hash], self._prompts[block.parent_hash]
        assert tokens[: len(before)] == before
        assert len(before) % self._block_sizes[group] == 0
        assert 0 < block.num_tokens == len(tokens) - len(before) <= self._block_sizes[group]
        if block.token_ids is not None:
            assert tuple(array("Q", block.token_ids)) == tokens[len(before) :]
            self._coverage["event: with tokens"] += 1
