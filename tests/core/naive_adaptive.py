"""Eviction that knows conversations, without shortcuts: scores are worked out anew whenever blocks are taken.

What grades are worth and which weight they have is not said twice: both are tested by themselves.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from blockyard.core.adaptive_queue import REMEMBERED_EVERY, UNREMEMBERED
from blockyard.core.grade import MAX_COUNT, TICKS, count_level, grade_of, run_level, worth
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from blockyard.core.marks import marks_of
from blockyard.core.weight_trial import WeightTrial
from core.naive_blocks import NaiveBlocks
from core.naive_counts import NaiveCounts


class Known(NamedTuple):
    """How often a block's content was asked for, and the two levels of its grade."""

    num_uses: int
    level: int
    run: int


class NaiveAdaptive(NaiveBlocks):
    """As `NaiveBlocks`, with another order.

    Attributes:
        known: Of each block that has a hash, or had one.
        freed_at: When each block was freed last, in blocks used.
        now: Blocks used so far: taken, but for pinned ones, and found.
        remembered: Counts of evicted blocks: every eighth by its id, and each that was freed at another
            time than the one evicted before it.
        evicted_at: When that had been freed.
        trial: Says what the weight is.
        num_by_grade: Blocks that were evicted before one that had been freed earlier.
        num_come_back: Runs of which something was remembered when they were published.
        weights: Those that blocks were taken at.
    """

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.num_usable = max(num_blocks - 1, 1)
        self.known: dict[BlockId, Known] = {}
        self.freed_at: dict[BlockId, int] = {}
        self.now = 0
        self.remembered = NaiveCounts(self.num_usable)
        self.evicted_at = -1
        self.trial = WeightTrial(self.num_usable)
        self.num_by_grade = self.num_come_back = 0
        self.weights: set[int] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> "NaiveAdaptive":
        """A trial is no plain data, but can say what it knows as such."""
        copied = NaiveAdaptive(len(self.reference_counts))
        for name, value in vars(self).items():
            if name != "trial":
                setattr(copied, name, copy.deepcopy(value, memo))
        copied.trial.load(self.trial.to_state())
        return copied

    def in_order(self) -> list[BlockId]:
        """Those without a hash; then by score; of equal ones, the lower grade; then as they were freed.

        Pinned ones come last, and go by no score.
        """
        cached = {key.block for key in self.keys}

        def place(block: BlockId) -> tuple[int, ...]:
            if block not in cached:
                return (0,)
            if self.is_pinned(block):
                return (2,)
            grade = grade_of(self.known[block].level, self.known[block].run)
            return (1, self.freed_at[block] + self._worth(grade), grade)

        return sorted(self.free, key=place)

    def _worth(self, grade: int) -> int:
        """In blocks used."""
        return worth(self.trial.weight, grade) * max(self.num_usable // TICKS, 1)

    def take(self, num_blocks: int) -> list[BlockId]:
        unpinned = [block for block in self.in_order()[:num_blocks] if not self.is_pinned(block)]
        for block in unpinned:
            if self.is_cached(block):
                if block % REMEMBERED_EVERY == 0 or self.freed_at[block] != self.evicted_at:
                    self.remembered.keep(self._mark(block), self.known[block].num_uses)
                self.evicted_at = self.freed_at[block]
        self.now += len(unpinned)
        self.weights.add(self.trial.weight)
        left = [key.block for key in self.keys if key.block in self.free and key.block not in unpinned]
        earliest = min((self.freed_at[block] for block in left), default=self.now)
        self.num_by_grade += sum(self.freed_at.get(block, 0) > earliest for block in unpinned)
        return super().take(num_blocks)

    def _mark(self, block: BlockId) -> int:
        (mark,) = marks_of([self.keys_of(block)[0].block_hash])
        return mark

    def release(self, blocks: Sequence[BlockId]) -> int:
        """Each comes to be as well known as what is behind it, which may be found behind another as well."""
        cached = [block for block in blocks if self.is_cached(block)]
        for at, block in enumerate(cached):
            behind = [self.known[each] for each in cached[: at + 1]]
            level, run = max(each.level for each in behind), max(each.run for each in behind)
            self.known[block] = self.known[block]._replace(level=level, run=run)
        self.freed_at.update(dict.fromkeys(blocks, self.now))
        return super().release(blocks)

    def _free_again(self, blocks: Sequence[BlockId]) -> None:
        self.freed_at.update(dict.fromkeys(blocks, self.now))
        super()._free_again(blocks)

    def note_hit(self, blocks: Sequence[BlockId]) -> None:
        """Each was used once more, and is as well known as what is behind it."""
        found = [block for block in blocks if block != NULL_BLOCK]
        level = run = 0
        for block in reversed(found):
            known = self.known[block]
            count = min(known.num_uses + 1, MAX_COUNT)
            level = max(level, known.level, count_level(count))
            run = max(run, known.run)
            self.known[block] = Known(count, level, run)
        self.now += len(found)
        hashes = [self.keys_of(block)[0].block_hash for block in reversed(found)]
        self.trial.note_used(marks_of(hashes), 0, self.now)

    def note_published(
        self, blocks: Sequence[BlockId], hashes: Sequence[BlockHash], parent: BlockId = NULL_BLOCK
    ) -> None:
        """What comes back is known up to the last block that is remembered, and a little further.

        That one's count goes for those behind it. What stands before another is used as often. None is better
        known than its parent; the others came along with all that is new.
        """
        marks = marks_of(list(hashes))
        counts = [self.remembered.recall(mark) for mark in marks]
        remembered = [at for at, count in enumerate(counts) if count]
        num_known = 0
        if remembered:
            self.num_come_back += 1
            num_known = min(remembered[-1] + 1 + UNREMEMBERED, len(counts))
            counts[remembered[-1] :] = [counts[remembered[-1]]] * len(counts[remembered[-1] :])
        run = run_level(max(len(blocks) - num_known, 1))
        highest = count_level(MAX_COUNT)
        if self.is_cached(parent):
            run = min(run, self.known[parent].run)
            highest = self.known[parent].level
        for at, block in enumerate(blocks):
            count = min(max(counts[at:num_known]) + 1, MAX_COUNT) if at < num_known else 1
            self.known[block] = Known(count, min(count_level(count), highest), run)
        self.trial.note_used(marks, run, self.now)
