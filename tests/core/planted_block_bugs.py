"""Bugs planted in how blocks are given and kept: parts of a pool to be swapped for broken ones."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from collections.abc import Set as AbstractSet
from typing import Any

from blockyard.core.allocator import Allocator
from blockyard.core.block_store import BlockStore
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.forks import Copies
from blockyard.core.headroom import Headroom
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId
from blockyard.core.kinds import ANY_LENGTH, Demand
from blockyard.core.pool import Pool
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.retention import Retention
from blockyard.core.sequence import BlockTable, Sequence


class HeadFirst(Allocator):
    def free(self, sequence: Sequence) -> int:
        return sum(
            store.release(table.block_ids) for store, table in zip(self._stores, sequence.tables, strict=True)
        )


class LookaheadPublished(Allocator):
    def publish(self, sequence: Sequence) -> int:
        num_granted = sequence.num_granted_tokens
        sequence.num_granted_tokens = min(
            (
                len(table.block_ids) * kind.block_size
                for kind, table in zip(self._kinds, sequence.tables, strict=True)
                if kind.is_cacheable
            ),
            default=num_granted,
        )
        num_published = super().publish(sequence)
        sequence.num_granted_tokens = num_granted
        return num_published


class WindowDroppedEarly(Allocator):
    def _drop_skipped(self, sequence: Sequence, num_granted_tokens: int) -> None:
        super()._drop_skipped(sequence, num_granted_tokens + 2)


class RefusalTakesBackTokens(Allocator):
    def extend(
        self, sequence: Sequence, copies: Copies, *, num_granted_tokens: int, **asked: Any
    ) -> list[list[BlockId]]:
        try:
            return super().extend(sequence, copies, num_granted_tokens=num_granted_tokens, **asked)
        except InsufficientBlocks:
            sequence.num_granted_tokens = num_granted_tokens
            raise


class PublishedBlocksWrittenAnew(Allocator):
    def can_take_back(self, sequence: Sequence, num_tokens: int) -> bool:
        return num_tokens >= sequence.num_committed_tokens


class WatermarkForgotten(Allocator):
    def _require_free(self, *asked: Any, capped: bool = False) -> None:
        super()._require_free(*asked[:3], capped=capped)


class CopiesNotCounted(Allocator):
    def _require_free(
        self, tables: SequenceOf[BlockTable], demand: Demand, _: object, *asked: Any, capped: bool = False
    ) -> None:
        reserved = [
            store.num_untouched(table.block_ids) for store, table in zip(self._stores, tables, strict=True)
        ]
        super()._require_free(tables, demand, reserved, *asked, capped=capped)


class UncommittedTokensDropped(Allocator):
    def _drop_skipped(self, sequence: Sequence, num_granted_tokens: int) -> None:
        num_committed, sequence.num_committed_tokens = sequence.num_committed_tokens, num_granted_tokens
        super()._drop_skipped(sequence, num_granted_tokens)
        sequence.num_committed_tokens = num_committed


class StatesOfOtherLengthsPublished(Allocator):
    def _is_written(self, *_: object) -> bool:
        return True


class HashKeptOnEviction(BlockStore):
    __slots__ = ()

    def take(self, num_blocks: int) -> list[BlockId]:
        blocks = self.queue.pop(num_blocks)
        for block in blocks:
            self.reference_counts[block] = 1
        return blocks


class SharedBlockReleasedTwice(BlockStore):
    __slots__ = ()

    def release(self, blocks: list[BlockId]) -> int:
        num_freed = super().release(blocks)
        for block in blocks:
            self.reference_counts[block] = max(self.reference_counts[block] - 1, 0)
        return num_freed


class NullTouched(BlockStore):
    __slots__ = ()

    def touch(self, blocks: list[BlockId]) -> None:
        super().touch(blocks)
        self.reference_counts[NULL_BLOCK] += blocks.count(NULL_BLOCK)


class TouchedBlockStaysFree(BlockStore):
    __slots__ = ()

    def touch(self, blocks: list[BlockId]) -> None:
        for block in blocks:
            self.reference_counts[block] += block != NULL_BLOCK


class NewestEvictedFirst(BlockStore):
    __slots__ = ()

    def release(self, blocks: list[BlockId]) -> int:
        num_free = len(self.queue)
        num_freed = super().release(blocks)
        order = list(self.queue)
        self.queue.pop(len(order))
        self.queue.append(order[num_free:] + order[:num_free])
        return num_freed


class StateHashesNotMoved(BlockStore):
    __slots__ = ()

    def move_hashes(self, source: BlockId, destination: BlockId) -> None:
        pass


class HashesOfPartsKept(BlockStore):
    __slots__ = ()

    def publish_run(
        self, blocks: list[BlockId], group: int, block_hashes: list[BlockHash], parent: BlockId = NULL_BLOCK
    ) -> int:
        fresh = [at for at, block in enumerate(blocks) if self.hashes[block] is None]
        for block, block_hash in zip(blocks, block_hashes, strict=True):
            if self.hashes[block] is not None:
                self.publish_part(block, group, block_hash)
        super().publish_run([blocks[at] for at in fresh], group, [block_hashes[at] for at in fresh], parent)
        return len(blocks)


class UnsettledStatesShared(BlockStore):
    __slots__ = ()

    def withheld_from(self, lease_id: LeaseId | None) -> AbstractSet[BlockId]:  # noqa: ARG002 - the bug
        return super().withheld_from(None)


class NewestDuplicateFirst(PrefixIndex):
    __slots__ = ()

    def add_run(self, group: int, blocks: list[BlockId], block_hashes: list[BlockHash]) -> None:
        for block, block_hash in zip(blocks, block_hashes, strict=True):
            others = self._all_by_own(group, block_hash)
            self.remove_run(others)
            known = [block, *others]
            super().add_run(group, known, [block_hash] * len(known))


class SlotsForOneMore(Headroom):
    __slots__ = ()

    def note(self, sequence: Sequence) -> None:
        super().note(sequence)
        sequence.extend_headroom += sequence.extend_headroom > 0


class DropsForgotten(Headroom):
    __slots__ = ()

    def _most_tokens_kept(self, sequence: Sequence, num_computed: int) -> int:  # noqa: ARG002 - the bug
        return ANY_LENGTH


class PublishedALittleLate(Headroom):
    __slots__ = ()

    def _next_publishing(self, sequence: Sequence, num_computed: int) -> int:
        return super()._next_publishing(sequence, num_computed) + 1


class RetentionKeepsTooLittle(Retention):
    def kept(self, group: int, positions: range, sequence: Sequence) -> Iterable[int]:
        return [position for position in super().kept(group, positions, sequence) if position % 4]


class RetentionForgetsReplays(Retention):
    def _replay_ends(self, num_prompt_tokens: int) -> list[int]:
        return super()._replay_ends(num_prompt_tokens)[:-1]


class NothingUnripe(set[BlockId]):
    def add(self, _: BlockId) -> None:
        pass


def hit_unripe_states(pool: Pool) -> None:
    pool.store.unripe = NothingUnripe()


def take_host_blocks_from_device(pool: Pool) -> None:
    pool.sequences._allocator._stores = (pool.store,) * len(pool.config.groups)


def break_retention(bug: type[Retention]) -> Callable[[Pool], None]:
    def plant(pool: Pool) -> None:
        pool.sequences._allocator._retention = bug.of(pool.config, pool.sequences._allocator._kinds)

    return plant


def end_chunks_anywhere(pool: Pool) -> None:
    pool.sequences._chunk_ends = None


def publish_before_commit(pool: Pool) -> None:
    pool.sequences._allocator._publishes_on_allocate = True
