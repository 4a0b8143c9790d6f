"""All blocks that a hit of a whole prefix needs: what a hard pin holds.

A hit of it ends where blocks of all groups end. What only some leases may go on from is none, nor is what a
block holds before it is full: both change under whoever holds them.

    16 tokens a block; a draft model's group needs one block more than it serves:

    prefix     |  16  |  32  |  48  | 5      the last 5 tokens are no full block
    target     ---------------------         48; with a draft 32, and the draft's third block besides
"""

from collections.abc import Sequence

from blockyard.core.arithmetic import align_down
from blockyard.core.block_store import BlockStore
from blockyard.core.config import PoolConfig
from blockyard.core.hash_chain import coarser_view
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId
from blockyard.core.kinds import kinds_of
from blockyard.core.prefix_lookup import PrefixLookup

_NO_LEASE = LeaseId("")
"""No lease's id: whoever looks under it finds nothing that is only some lease's."""


class WholePrefix:
    """Looks for prefixes in the ``stores`` of a pool of ``config``: the device's, and the host's if any."""

    def __init__(self, config: PoolConfig, stores: Sequence[BlockStore]) -> None:
        self._kinds = kinds_of(config)
        self._stores = [stores[group.is_host_resident] for group in config.groups]
        self._alignment = config.scheduler_block_size
        self._hash_block_size = config.hash_block_size
        self._is_caching = config.enable_prefix_caching
        self._lookup = PrefixLookup(self._kinds, self._stores, self._alignment, self._hash_block_size)
        self._num_behind = self._alignment * any(kind.is_draft for kind in self._kinds)

    def num_tokens(self, num_hashes: int) -> int:
        """Tokens of the longest hit of a prefix of ``num_hashes`` hash blocks."""
        num_aligned = align_down(num_hashes * self._hash_block_size, self._alignment)
        return max(num_aligned - self._num_behind, 0)

    def find(self, block_hashes: Sequence[BlockHash]) -> tuple[int, list[list[BlockId]]]:
        """How many of `num_tokens` are cached, and per group the blocks of that hit, without nulls."""
        if not self._is_caching:
            return 0, []
        num_told = self.num_tokens(len(block_hashes)) + self._num_behind
        told = block_hashes[: num_told // self._hash_block_size]
        hit = self._lookup.longest_hit(told, num_told, _NO_LEASE)
        found = []
        for group, (kind, store) in enumerate(zip(self._kinds, self._stores, strict=True)):
            blocks = list(hit.block_ids[group])
            if kind.is_draft and hit.num_tokens:
                own = coarser_view(told, kind.block_size // self._hash_block_size)
                behind = own[hit.num_tokens // kind.block_size :]
                blocks += [store.index.first(group, block_hash) for block_hash in behind]
            found.append([block for block in blocks if block != NULL_BLOCK])
        return hit.num_tokens, found
