"""Giving blocks to sequences and taking them back: the block tables of all groups of a pool.

Every method either does all that it says or raises and changes nothing, but for one thing: blocks that an
extension finds behind the window are dropped even if the extension is then refused.
"""

from collections.abc import Sequence as SequenceOf

from blockyard.core.arithmetic import align_down
from blockyard.core.block_store import BlockStore
from blockyard.core.config import PoolConfig, Publish
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from blockyard.core.kinds import kind_of
from blockyard.core.prefix_lookup import Hit, PrefixLookup
from blockyard.core.sequence import Sequence


class BlockTables:
    """The sequences' side of a pool's blocks.

    Args:
        config: The pool's configuration.
        store: Its blocks, changed by this object's methods.

    Raises:
        InvalidRequest: A group's kind is unknown or its sizes are wrong.
    """

    def __init__(self, config: PoolConfig, store: BlockStore) -> None:
        self._config = config
        self._store = store
        self._kinds = tuple(kind_of(group) for group in config.groups)
        self._factors = tuple(kind.block_size // config.hash_block_size for kind in self._kinds)
        self._lookup = PrefixLookup(self._kinds, config.scheduler_block_size, config.hash_block_size)
        self._publishes_on_allocate = config.publish is Publish.ON_ALLOCATE

    def find(self, num_tokens: int, block_hashes: SequenceOf[BlockHash]) -> Hit:
        """The longest cached prefix of ``num_tokens`` tokens, never all of them: the last one is computed."""
        if not self._config.enable_prefix_caching:
            return self._lookup.no_hit()
        return self._lookup.longest_hit(self._store.index, block_hashes, num_tokens - 1)

    def no_hit(self) -> Hit:
        """What `find` returns where nothing is cached."""
        return self._lookup.no_hit()

    def admit(
        self,
        sequence: Sequence,
        hit: Hit,
        *,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        must_fit_tokens: int,
    ) -> None:
        """Fill a new sequence's tables with ``hit`` and with blocks for ``num_new_tokens`` more tokens.

        Args:
            sequence: With empty tables; its counts and tables are set.
            hit: What `find` returned, with nothing changed since.
            num_new_tokens: Tokens to compute now, behind the hit.
            num_lookahead_tokens: Slots beyond them.
            must_fit_tokens: Refuse unless so many tokens would fit; 0 for no such demand.

        Raises:
            InsufficientBlocks: Nothing was given.
        """
        num_granted = hit.num_tokens + num_new_tokens
        num_slots = self._num_slots(num_granted + num_lookahead_tokens)
        watermark = self._config.watermark_blocks
        if must_fit_tokens:
            needed = self._num_blocks_to_admit(self._num_slots(must_fit_tokens), hit, capped=True)
            self._require_free(needed + watermark)
        self._require_free(self._num_blocks_to_admit(num_slots, hit, capped=False) + watermark)

        for kind, cached in zip(self._kinds, hit.block_ids, strict=True):
            num_skipped = min(kind.num_skipped_blocks(hit.num_tokens), len(cached))
            table = [NULL_BLOCK] * num_skipped + cached[num_skipped:]
            self._store.touch(table)
            sequence.tables.append(table)
            sequence.num_published_blocks.append(len(table))
        self._append(sequence, num_slots)
        sequence.num_computed_tokens = num_granted
        sequence.num_committed_tokens = hit.num_tokens

    def extend(
        self,
        sequence: Sequence,
        *,
        num_computed_tokens: int,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        must_fit_tokens: int = 0,
    ) -> list[list[BlockId]]:
        """Drop what ``sequence`` needs no more and give it blocks for ``num_new_tokens`` more tokens.

        Returns:
            Per group, the blocks appended to its table.

        Raises:
            InsufficientBlocks: Nothing was given.
        """
        if must_fit_tokens:
            num_slots = self._num_slots(must_fit_tokens)
            self._require_free(self._num_blocks_to_extend(sequence, num_slots, capped=True))
        self._drop_skipped(sequence, num_computed_tokens)
        num_granted = num_computed_tokens + num_new_tokens
        num_slots = self._num_slots(num_granted + num_lookahead_tokens)
        self._require_free(self._num_blocks_to_extend(sequence, num_slots, capped=False))
        sequence.num_computed_tokens = num_granted
        return self._append(sequence, num_slots)

    def publish(self, sequence: Sequence) -> int:
        """Make the sequence's full blocks hits for others, as far as the pool's mode and its hashes allow.

        Returns:
            How many blocks were published.
        """
        if not self._config.enable_prefix_caching:
            return 0
        num_tokens = (
            sequence.num_computed_tokens if self._publishes_on_allocate else sequence.num_committed_tokens
        )
        hashes = sequence.block_hashes
        num_tokens = min(num_tokens, len(hashes) * self._config.hash_block_size)
        if len(self._kinds) > 1:
            num_tokens = align_down(num_tokens, self._config.scheduler_block_size)
        num_published = 0
        for group, (kind, factor) in enumerate(zip(self._kinds, self._factors, strict=True)):
            table = sequence.tables[group]
            first, end = sequence.num_published_blocks[group], num_tokens // kind.block_size
            for position in range(first, end):
                if table[position] != NULL_BLOCK:
                    self._store.publish(table[position], group, hashes[(position + 1) * factor - 1])
                    num_published += 1
            sequence.num_published_blocks[group] = max(first, end)
        return num_published

    def free(self, sequence: Sequence) -> int:
        """Take back all blocks of ``sequence``, group by group, tail first; returns how many became free."""
        return sum(self._store.release(reversed(table)) for table in sequence.tables)

    def _num_slots(self, num_tokens: int) -> int:
        limit = self._config.max_model_len
        return num_tokens if limit is None else min(num_tokens, limit)

    def _num_blocks_to_admit(self, num_slots: int, hit: Hit, *, capped: bool) -> int:
        """Blocks that leave the free queue: new ones, and those of the hit that nobody holds."""
        counts = self._store.reference_counts
        total = 0
        for group, (kind, cached) in enumerate(zip(self._kinds, hit.block_ids, strict=True)):
            num_skipped = kind.num_skipped_blocks(hit.num_tokens)
            needed = self._num_blocks(group, num_slots, capped=capped)
            total += max(needed - max(num_skipped, len(cached)), 0)
            total += sum(1 for block in cached[num_skipped:] if block != NULL_BLOCK and counts[block] == 0)
        return total

    def _num_blocks_to_extend(self, sequence: Sequence, num_slots: int, *, capped: bool) -> int:
        return sum(
            max(self._num_blocks(group, num_slots, capped=capped) - len(table), 0)
            for group, table in enumerate(sequence.tables)
        )

    def _num_blocks(self, group: int, num_slots: int, *, capped: bool) -> int:
        kind = self._kinds[group]
        num_blocks = kind.num_blocks(num_slots)
        if capped:
            cap = kind.max_blocks_at_once(self._config.max_in_flight_tokens, self._config.max_model_len)
            if cap is not None:
                return min(num_blocks, cap)
        return num_blocks

    def _require_free(self, num_blocks: int) -> None:
        num_free = len(self._store.queue)
        if num_blocks > num_free:
            raise InsufficientBlocks.of(num_blocks, num_free)

    def _append(self, sequence: Sequence, num_slots: int) -> list[list[BlockId]]:
        appended = []
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            num_missing = kind.num_blocks(num_slots) - len(table)
            blocks = self._store.take(num_missing) if num_missing > 0 else []
            table.extend(blocks)
            appended.append(blocks)
        return appended

    def _drop_skipped(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """Replace blocks that are needed no more by nulls, from the last one back to the null before them.

        Where blocks are published on commit, tokens that are not committed may still be written by a
        worker: what these look at stays.
        """
        if not self._publishes_on_allocate:
            num_computed_tokens = min(num_computed_tokens, sequence.num_committed_tokens)
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            position = min(kind.num_skipped_blocks(num_computed_tokens), len(table)) - 1
            dropped = []
            while position >= 0 and table[position] != NULL_BLOCK:
                dropped.append(table[position])
                table[position] = NULL_BLOCK
                position -= 1
            if dropped:
                self._store.release(dropped)
