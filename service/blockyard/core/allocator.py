"""Giving blocks to sequences and taking them back, over all groups of a pool.

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
from blockyard.core.sequence import BlockTable, Sequence


class Allocator:
    """What a pool's sequences and its blocks have to do with each other.

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
            sequence: Without tables; its tables and counts are set.
            hit: What `find` returned, with nothing changed since.
            num_new_tokens: Tokens to compute now, behind the hit.
            num_lookahead_tokens: Slots beyond them.
            must_fit_tokens: Refuse unless so many tokens would fit; 0 for no such demand.

        Raises:
            InsufficientBlocks: Nothing was given.
        """
        tables = [
            _table_of_hit(cached, kind.num_skipped_blocks(hit.num_tokens))
            for kind, cached in zip(self._kinds, hit.block_ids, strict=True)
        ]
        counts = self._store.reference_counts
        num_taken_back = sum(  # blocks of the hit that nobody holds: they leave the free queue, too
            1 for table in tables for block in table.block_ids if block != NULL_BLOCK and counts[block] == 0
        )
        reserve = num_taken_back + self._config.watermark_blocks
        if must_fit_tokens:
            self._require_free(sum(self._missing(tables, must_fit_tokens, capped=True)) + reserve)
        num_granted = hit.num_tokens + num_new_tokens
        missing = self._missing(tables, num_granted + num_lookahead_tokens)
        self._require_free(sum(missing) + reserve)

        for table in tables:
            self._store.touch(table.block_ids)
        sequence.tables = tables
        sequence.num_granted_tokens = num_granted
        sequence.num_committed_tokens = hit.num_tokens
        self._append(sequence, missing)

    def can_take_back(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether all but the first ``num_tokens`` tokens of ``sequence`` may be written anew.

        Not if some of them are committed or published, nor if blocks that the first of them looks at were
        dropped.
        """
        if num_tokens < sequence.num_committed_tokens:
            return False
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            if num_tokens < table.num_published * kind.block_size:
                return False
            needed_from = kind.num_skipped_blocks(num_tokens)
            if needed_from < len(table.block_ids) and table.block_ids[needed_from] == NULL_BLOCK:
                return False
        return True

    def extend(
        self,
        sequence: Sequence,
        *,
        num_granted_tokens: int,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        must_fit_tokens: int = 0,
    ) -> list[list[BlockId]]:
        """Drop what ``sequence`` needs no more and give it blocks for ``num_new_tokens`` more tokens.

        Args:
            sequence: Its tables and its count of granted tokens are set.
            num_granted_tokens: Tokens that it has slots for, less those taken back.
            num_new_tokens: Tokens to compute now, behind these.
            num_lookahead_tokens: Slots beyond them.
            must_fit_tokens: Refuse unless so many tokens would fit; 0 for no such demand.

        Returns:
            Per group, the blocks appended to its table.

        Raises:
            InsufficientBlocks: Nothing was given.
        """
        if must_fit_tokens:
            self._require_free(sum(self._missing(sequence.tables, must_fit_tokens, capped=True)))
        self._drop_skipped(sequence, num_granted_tokens)
        num_granted = num_granted_tokens + num_new_tokens
        missing = self._missing(sequence.tables, num_granted + num_lookahead_tokens)
        self._require_free(sum(missing))
        sequence.num_granted_tokens = num_granted
        return self._append(sequence, missing)

    def publish(self, sequence: Sequence) -> int:
        """Make the sequence's full blocks hits for others, as far as the pool's mode and its hashes allow.

        Returns:
            How many blocks were published.
        """
        config, hashes = self._config, sequence.block_hashes
        if not config.enable_prefix_caching or not hashes:
            return 0
        num_tokens = (
            sequence.num_granted_tokens if self._publishes_on_allocate else sequence.num_committed_tokens
        )
        num_tokens = min(num_tokens, len(hashes) * config.hash_block_size)
        if len(self._kinds) > 1:
            num_tokens = align_down(num_tokens, config.scheduler_block_size)
        num_published = 0
        for group, (kind, table) in enumerate(zip(self._kinds, sequence.tables, strict=True)):
            end = num_tokens // kind.block_size
            factor = kind.block_size // config.hash_block_size
            for position in range(table.num_published, end):
                block = table.block_ids[position]
                if block != NULL_BLOCK:
                    self._store.publish(block, group, hashes[(position + 1) * factor - 1])
                    num_published += 1
            table.num_published = max(table.num_published, end)
        return num_published

    def free(self, sequence: Sequence) -> int:
        """Take back all blocks of ``sequence``, group by group, tail first; returns how many became free."""
        return sum(self._store.release(reversed(table.block_ids)) for table in sequence.tables)

    def _missing(self, tables: list[BlockTable], num_tokens: int, *, capped: bool = False) -> list[int]:
        """Per group, the blocks that its table lacks for ``num_tokens`` slots.

        With ``capped``, no group is taken to need more than it ever holds at a time.
        """
        limit = self._config.max_model_len
        num_slots = num_tokens if limit is None else min(num_tokens, limit)
        missing = []
        for kind, table in zip(self._kinds, tables, strict=True):
            num_blocks = kind.num_blocks(num_slots)
            if capped:
                cap = kind.max_blocks_at_once(self._config.max_in_flight_tokens, limit)
                num_blocks = num_blocks if cap is None else min(num_blocks, cap)
            missing.append(max(num_blocks - len(table.block_ids), 0))
        return missing

    def _require_free(self, num_blocks: int) -> None:
        if num_blocks > self._store.num_free_blocks:
            raise InsufficientBlocks.of(num_blocks, self._store.num_free_blocks)

    def _append(self, sequence: Sequence, missing: list[int]) -> list[list[BlockId]]:
        appended = []
        for table, num_blocks in zip(sequence.tables, missing, strict=True):
            blocks = self._store.take(num_blocks) if num_blocks else []
            table.block_ids += blocks
            appended.append(blocks)
        return appended

    def _drop_skipped(self, sequence: Sequence, num_granted_tokens: int) -> None:
        """Replace blocks that are needed no more by nulls, from the last one back to the null before them.

        Where blocks are published on commit, tokens that are not committed may still be written by a
        worker: what these look at stays.
        """
        num_tokens = num_granted_tokens
        if not self._publishes_on_allocate:
            num_tokens = min(num_tokens, sequence.num_committed_tokens)
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            block_ids = table.block_ids
            position = min(kind.num_skipped_blocks(num_tokens), len(block_ids)) - 1
            dropped = []
            while position >= 0 and block_ids[position] != NULL_BLOCK:
                dropped.append(block_ids[position])
                block_ids[position] = NULL_BLOCK
                position -= 1
            if dropped:
                self._store.release(dropped)


def _table_of_hit(cached: list[BlockId], num_skipped: int) -> BlockTable:
    """A table that begins with a null for each skipped block; of a hit, nothing is left to publish."""
    block_ids = [NULL_BLOCK] * num_skipped + cached[num_skipped:]
    return BlockTable(block_ids, num_published=len(block_ids))
