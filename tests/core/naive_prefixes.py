"""Cached prefixes without shortcuts: what a group looks at, what is published, and what is a hit.

A hit is not searched for as the real pool does, by shortening a candidate group by group. A length *is* a
hit when every group finds the blocks that it still sees at that length; the longest such length is the
answer. Both must come to the same.
"""

from collections.abc import Sequence

from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from core.naive_blocks import NaiveBlocks
from core.naive_sequence import NaiveSequence


def num_skipped_blocks(group: GroupConfig, num_computed: int) -> int:
    """Blocks wholly before what the next token, at position ``num_computed``, looks at."""
    if group.sliding_window is not None:
        skipped = max(0, num_computed - group.sliding_window + 1)
    elif group.attention_chunk_size is not None:
        skipped = num_computed // group.attention_chunk_size * group.attention_chunk_size
    else:
        skipped = 0
    return skipped // group.block_size


class NaivePrefixes:
    """What is cached in ``blocks``: published for live sequences, found for new ones."""

    def __init__(self, config: PoolConfig, blocks: NaiveBlocks) -> None:
        self.config = config
        self.blocks = blocks

    def find(self, num_tokens: int, hashes: Sequence[BlockHash]) -> tuple[int, list[list[BlockId]]]:
        """The longest cached prefix of at most ``num_tokens - 1`` tokens, and its blocks per group.

        A group serves a length when every block that is not skipped at that length is cached: for full
        attention these are all, for a sliding window the last ``div_ceil(w - 1, block_size)``, for chunked
        local attention those from the chunk of the next position on.
        """
        bound = min(num_tokens - 1, len(hashes) * self.config.hash_block_size)
        alignment = self.config.scheduler_block_size
        for length in range(bound // alignment * alignment, 0, -alignment):
            tables = [self._hit(number, length, hashes) for number in range(len(self.config.groups))]
            served = [table for table in tables if table is not None]
            if len(served) == len(tables) and self.config.enable_prefix_caching:
                return length, served
        return 0, [[] for _ in self.config.groups]

    def _hit(self, number: int, length: int, hashes: Sequence[BlockHash]) -> list[BlockId] | None:
        """One group's blocks of a hit of ``length`` tokens, null where skipped; None if one is missing."""
        group = self.config.groups[number]
        table: list[BlockId] = [NULL_BLOCK] * num_skipped_blocks(group, length)
        while len(table) < length // group.block_size:
            block = self.blocks.find(self._hash_of_block(group, len(table), hashes), number)
            if block is None:
                return None
            table.append(block)
        return table

    def publish(self, sequence: NaiveSequence) -> int:
        """Full blocks up to what is computed (``on_allocate``) or committed, as far as hashes were sent.

        Returns how many blocks were published. With several groups the length is aligned down first.
        """
        if not self.config.enable_prefix_caching:
            return 0
        on_commit = self.config.publish is Publish.ON_COMMIT
        hashes = sequence.content.hashes
        length = sequence.num_committed if on_commit else sequence.num_computed
        length = min(length, len(hashes) * self.config.hash_block_size)
        if len(self.config.groups) > 1:
            length = length // self.config.scheduler_block_size * self.config.scheduler_block_size
        num_published = 0
        for number, group in enumerate(self.config.groups):
            for position in range(sequence.num_published[number], length // group.block_size):
                sequence.num_published[number] = position + 1
                block = sequence.tables[number][position]
                if block != NULL_BLOCK:
                    self.blocks.index.append((self._hash_of_block(group, position, hashes), number, block))
                    num_published += 1
        return num_published

    def _hash_of_block(self, group: GroupConfig, position: int, hashes: Sequence[BlockHash]) -> BlockHash:
        """With hashes finer than a group's blocks, the hash of a block is the hash at its last boundary."""
        end = (position + 1) * group.block_size
        return hashes[end // self.config.hash_block_size - 1]
