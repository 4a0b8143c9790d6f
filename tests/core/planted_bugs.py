"""Bugs planted in the pool, each of which the machine must find: a part of it swapped for a broken one."""

from collections.abc import Callable, Iterable
from typing import Any

from blockyard.core.allocator import Allocator
from blockyard.core.block_store import BlockStore
from blockyard.core.commands import Command, Idempotent, ResetPrefixCache, Step
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from blockyard.core.lease import Lease
from blockyard.core.pool import Pool
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.replies import Reply
from blockyard.core.sequence import Sequence


class HeadFirst(Allocator):
    def free(self, sequence: Sequence) -> int:
        return sum(self._store.release(table.block_ids) for table in sequence.tables)


class LookaheadPublished(Allocator):
    def publish(self, sequence: Sequence) -> int:
        num_granted = sequence.num_granted_tokens
        sizes = [group.block_size for group in self._config.groups]
        slots = [len(table.block_ids) * size for table, size in zip(sequence.tables, sizes, strict=True)]
        sequence.num_granted_tokens = max(num_granted, min(slots))
        num_published = super().publish(sequence)
        sequence.num_granted_tokens = num_granted
        return num_published


class WindowDroppedEarly(Allocator):
    def _drop_skipped(self, sequence: Sequence, num_granted_tokens: int) -> None:
        super()._drop_skipped(sequence, num_granted_tokens + 2)


class RefusalTakesBackTokens(Allocator):
    def extend(self, sequence: Sequence, *, num_granted_tokens: int, **asked: Any) -> list[list[BlockId]]:
        try:
            return super().extend(sequence, num_granted_tokens=num_granted_tokens, **asked)
        except InsufficientBlocks:
            sequence.num_granted_tokens = num_granted_tokens
            raise


class PublishedBlocksWrittenAnew(Allocator):
    def can_take_back(self, sequence: Sequence, num_tokens: int) -> bool:
        return num_tokens >= sequence.num_committed_tokens


class HashKeptOnEviction(BlockStore):
    __slots__ = ()

    def take(self, num_blocks: int) -> list[BlockId]:
        blocks = self.queue.pop(num_blocks)
        for block in blocks:
            self.reference_counts[block] = 1
        return blocks


class SharedBlockReleasedTwice(BlockStore):
    __slots__ = ()

    def release(self, blocks: Iterable[BlockId]) -> int:
        released = list(blocks)
        num_freed = super().release(released)
        for block in released:
            self.reference_counts[block] = max(self.reference_counts[block] - 1, 0)
        return num_freed


class NullTouched(BlockStore):
    __slots__ = ()

    def touch(self, blocks: Iterable[BlockId]) -> None:
        touched = list(blocks)
        super().touch(touched)
        self.reference_counts[NULL_BLOCK] += touched.count(NULL_BLOCK)


class TouchedBlockStaysFree(BlockStore):
    __slots__ = ()

    def touch(self, blocks: Iterable[BlockId]) -> None:
        for block in blocks:
            self.reference_counts[block] += block != NULL_BLOCK


class NewestEvictedFirst(BlockStore):
    __slots__ = ()

    def release(self, blocks: Iterable[BlockId]) -> int:
        num_free = len(self.queue)
        num_freed = super().release(blocks)
        order = list(self.queue)
        self.queue.pop(len(order))
        self.queue.append(order[num_free:] + order[:num_free])
        return num_freed


class NewestDuplicateFirst(PrefixIndex):
    __slots__ = ()

    def add(self, group: int, block_hash: BlockHash, block: BlockId) -> None:
        entry = self._tables[group].get(block_hash, {})
        others = [entry] if isinstance(entry, int) else list(entry)
        self._tables[group][block_hash] = dict.fromkeys([block, *others]) if others else block


class RawBlocksLost(Pool):
    def _end(self, lease: Lease) -> tuple[int, int]:
        lease.raw_blocks.clear()
        return super()._end(lease)


class RepeatsDone(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        return super().apply(command.command if isinstance(command, Idempotent) else command, now_ms)


class StepHalfDone(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, Step):
            for handle in command.commit.sequences:
                sequence = self.sequences.by_handle(handle)
                if sequence is not None:
                    sequence.num_committed_tokens = sequence.num_granted_tokens
        return super().apply(command, now_ms)


class ResetWhileHeld(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, ResetPrefixCache) and command.epoch is None:
            self.store.forget_all()
        return super().apply(command, now_ms)


class DuplicatesUnorderedInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        state["store"]["shared_hashes"] = []
        return state


def publish_before_commit(pool: Pool) -> None:
    pool.sequences._allocator._publishes_on_allocate = True


def swap(part: Callable[[Pool], Any], *broken: type) -> dict[str, Callable[[Pool], None]]:
    """By the name of each ``broken`` subclass, what makes a part of a pool an instance of it."""

    def planter(bug: type) -> Callable[[Pool], None]:
        def plant(pool: Pool) -> None:
            part(pool).__class__ = bug

        return plant

    return {bug.__name__: planter(bug) for bug in broken}


PLANTED_BUGS = {
    publish_before_commit.__name__: publish_before_commit,
    **swap(
        lambda pool: pool.sequences._allocator,
        HeadFirst,
        LookaheadPublished,
        WindowDroppedEarly,
        RefusalTakesBackTokens,
        PublishedBlocksWrittenAnew,
    ),
    **swap(
        lambda pool: pool.store,
        HashKeptOnEviction,
        SharedBlockReleasedTwice,
        NullTouched,
        TouchedBlockStaysFree,
        NewestEvictedFirst,
    ),
    **swap(lambda pool: pool.store.index, NewestDuplicateFirst),
    **swap(
        lambda pool: pool,
        RawBlocksLost,
        RepeatsDone,
        StepHalfDone,
        ResetWhileHeld,
        DuplicatesUnorderedInSnapshot,
    ),
}

CORRUPTING_BUGS = [bug.__name__ for bug in (NullTouched, TouchedBlockStaysFree, RawBlocksLost)]
"""Those that leave books which do not add up."""
