"""Eviction that knows conversations: what was used often, and comes in small turns, stays longer.

Blocks with content lie in a ring for each grade (`blockyard.core.grade`), in the order in which they were
freed. The score of a block is when it was freed, counted in blocks used, and the time that its grade is
worth at the weight of now (`blockyard.core.weight_trial`). The block of the lowest score goes first; it is
the first one of some ring. With a weight of nothing that is least recently used.

    ring of grade 0     freed at 90, 93, 97        worth 0       scores from 90 on
    ring of grade 8     freed at 60, 61, 99        worth 40      scores from 100 on

Counts outlive the blocks: of those that are evicted, every eighth by its id is remembered, and each that was
freed at another time than the one before it. When content comes back, all that stands before what is
remembered of it came with it, and is as well known.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Any, Final

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.free_queue import FreeQueue
from blockyard.core.grade import (
    MAX_COUNT,
    NUM_GRADES,
    NUM_RUN_LEVELS,
    QUARTER_WEIGHTS,
    TICKS,
    WORTHS,
    count_level,
    grade_of,
    higher_of_both,
    run_level,
)
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from blockyard.core.marks import marks_of
from blockyard.core.packing import pack_long_vector, pack_vector, unpack_long_vector, unpack_vector
from blockyard.core.remembered_counts import RememberedCounts
from blockyard.core.weight_trial import WeightTrial

REMEMBERED_EVERY: Final = 8
"""Of blocks by their ids, so that it is the same whether they are evicted at once or one by one."""
UNREMEMBERED: Final = 2
"""Blocks behind the last one that is remembered, taken for known as well, as some are."""
_NEVER: Final = 2**62


class AdaptiveQueue(FreeQueue):
    """As `FreeQueue`, with another order.

    Args:
        num_blocks: Blocks of the pool, the null block included; at least 1.
        hashes: Per block, the hash that it carries; read alone.
    """

    __slots__ = (
        "_evicted_at",
        "_freed_at",
        "_hashes",
        "_known",
        "_now",
        "_num_blank",
        "_num_blocks",
        "_remembered",
        "_trial",
        "_worth",
    )

    def __init__(self, num_blocks: int, hashes: list[BlockHash | None]) -> None:
        super().__init__(num_blocks, NUM_GRADES)
        self._hashes = hashes
        self._num_blocks = num_blocks
        self._num_blank = num_blocks - 1
        """Blocks in the first ring: those without content."""
        self._now = 0
        """Blocks used so far."""
        self._known = vec[i64]([0] * num_blocks)
        """Per block, its count and its grade, in one number."""
        self._freed_at = vec[i64]([0] * num_blocks)
        self._evicted_at = -1
        """When the last block that was evicted had been freed."""
        num_usable = max(num_blocks - 1, 1)
        tick_blocks = max(num_usable // TICKS, 1)
        self._worth = vec[i64]([ticks * tick_blocks for ticks in WORTHS])
        """By weight and grade, in blocks used."""
        self._remembered = RememberedCounts(num_usable)
        self._trial = WeightTrial(num_usable)

    @property
    def weight(self) -> float:
        """The weight of grades now: 0 for least recently used."""
        return QUARTER_WEIGHTS[self._trial.weight] / 4

    def __iter__(self) -> Iterator[BlockId]:
        yield from self._ring(NULL_BLOCK)
        rings = [self._scores(grade) for grade in range(NUM_GRADES)]
        for _, _, block in merge(*rings):
            yield block

    def pop(self, num_blocks: int) -> list[BlockId]:
        """As `FreeQueue.pop`: blocks without content first, then those of the lowest scores."""
        num_blank = min(num_blocks, self._num_blank)
        popped = super().pop(num_blank)
        self._num_blank -= num_blank
        self._now += num_blocks
        if num_blank < num_blocks:
            popped += self._evict(num_blocks - num_blank)
        return popped

    def note_hit(self, blocks: list[BlockId]) -> None:
        """See `FreeQueue.note_hit`. Each was used once more, and is as well known as what is behind it."""
        hashes, known = self._hashes, self._known
        block_hashes: list[BlockHash] = []
        highest = 0
        before: i64 = -1
        after: i64 = 0
        block: i64
        for block in reversed(blocks):
            block_hash = hashes[block]
            if block_hash is None:
                continue  # the null block
            block_hashes.append(block_hash)
            own = known[block]
            if own != before:
                before = own
                count = min((own >> 8) + 1, MAX_COUNT)
                highest = higher_of_both(highest, higher_of_both(own & 0xFF, grade_of(count_level(count), 0)))
                after = (count << 8) | highest
            known[block] = after
        self._now += len(block_hashes)
        self._trial.note_used(marks_of(block_hashes), 0, self._now)

    def note_published(
        self, blocks: list[BlockId], block_hashes: list[BlockHash], parent: BlockId = NULL_BLOCK
    ) -> None:
        """See `FreeQueue.note_published`. No block is better known than what it stands behind."""
        marks = marks_of(block_hashes)
        num_remembered = self._remembered.num_known(marks)
        num_known = 0
        if num_remembered:
            num_known = min(num_remembered + UNREMEMBERED, len(blocks))
        known = self._known
        most = known[parent] & 0xFF if self._hashes[parent] is not None else NUM_GRADES - 1
        level_of_run = min(run_level(max(len(blocks) - num_known, 1)), most % NUM_RUN_LEVELS)
        new: i64 = (1 << 8) | grade_of(0, level_of_run)
        block: i64
        for block in blocks:
            known[block] = new
        count = 1
        for at in range(num_known - 1, -1, -1):
            its_count = self._remembered.recall(marks[min(at, num_remembered - 1)])
            count = max(count, min(its_count + 1, MAX_COUNT))
            known[blocks[at]] = (count << 8) | grade_of(
                min(count_level(count), most // NUM_RUN_LEVELS), level_of_run
            )
        self._trial.note_used(marks, level_of_run, self._now)

    def note_released(self, blocks: list[BlockId]) -> None:
        """See `FreeQueue.note_released`. Each comes to be as well known as what is behind it.

        What is behind it may have been found behind another block of the same content, which may go earlier.
        """
        hashes, known = self._hashes, self._known
        highest: i64 = 0
        block: i64
        for block in blocks:
            own = known[block]
            grade = own & 0xFF
            if grade == highest or hashes[block] is None:
                continue  # as most are, and then it stays as it is
            highest = higher_of_both(highest, grade)
            known[block] = (own & ~0xFF) | highest

    def note_all_forgotten(self, further: list[BlockId]) -> None:
        """See `FreeQueue.note_all_forgotten`. The blocks keep their order."""
        blocks = [*self, *further]
        for sentinel in (NULL_BLOCK, *range(self._num_blocks, len(self._next))):
            self._next[sentinel] = self._prev[sentinel] = sentinel
        self._num_free = 0
        self._link(NULL_BLOCK, blocks, NULL_BLOCK)
        self._num_blank = len(blocks)

    def append(self, blocks: list[BlockId]) -> None:
        """As `FreeQueue.append`: each behind all others of its grade."""
        if not blocks:
            return
        known, freed_at = self._known, self._freed_at
        now: i64 = self._now
        block: i64
        for block in blocks:
            freed_at[block] = now
        grades: list[int] = [known[block] & 0xFF for block in blocks]
        begin, num_blocks = 0, len(blocks)
        is_one_run = grades.count(grades[0]) == num_blocks  # as most are, which costs less to find out
        while begin < num_blocks:
            grade = grades[begin]
            end = num_blocks if is_one_run else begin + 1
            while end < num_blocks and grades[end] == grade:
                end += 1
            sentinel = self._num_blocks + grade
            self._link(self._prev[sentinel], blocks[begin:end], sentinel)
            begin = end

    def prepend(self, blocks: list[BlockId]) -> None:
        """As `FreeQueue.prepend`."""
        super().prepend(blocks)
        self._num_blank += len(blocks)

    def _evict(self, num_blocks: int) -> list[BlockId]:
        """Take so many blocks with content, of which there are as many."""
        following, freed_at = self._next, self._freed_at
        first: i64 = self._trial.weight * NUM_GRADES
        evicted: list[BlockId] = []
        remembered: list[BlockId] = []
        evicted_at: i64 = self._evicted_at
        num_missing: i64 = num_blocks
        while num_missing > 0:
            ring, its_worth, last = self._lowest_ring(first)
            block = following[ring]
            freed: i64 = -1
            while num_missing and block != ring:
                if freed_at[block] != freed:
                    freed = freed_at[block]
                    if freed + its_worth > last:
                        break
                if freed != evicted_at or block % REMEMBERED_EVERY == 0:
                    remembered.append(block)
                evicted_at = freed
                evicted.append(block)
                num_missing -= 1
                block = following[block]
            following[ring] = block
            self._prev[block] = ring
        self._evicted_at = evicted_at
        self._num_free -= num_blocks
        self._remember(remembered)
        return evicted

    def _lowest_ring(self, first: "i64") -> "tuple[i64, i64, i64]":
        """The ring whose first block goes next, what its grade is worth, and up to which score they go.

        Of equal scores the lower grade goes first: it may stand behind the other. ``first``: where what
        grades are worth begins.
        """
        following, freed_at, its_worth = self._next, self._freed_at, self._worth
        num_blocks: i64 = self._num_blocks
        best: i64 = -1
        lowest: i64 = _NEVER
        last: i64 = _NEVER
        grade: i64 = 0
        while grade < NUM_GRADES:
            block = following[num_blocks + grade]
            if block < num_blocks:
                score = freed_at[block] + its_worth[first + grade]
                if score < lowest:
                    best, lowest, last = grade, score, lowest - 1
                elif score < last:
                    last = score
            grade += 1
        return num_blocks + best, its_worth[first + best], last

    def _remember(self, blocks: list[BlockId]) -> None:
        """Remember how often what is evicted from ``blocks`` was used."""
        hashes, known = self._hashes, self._known
        block_hashes: list[BlockHash] = []
        counts: list[int] = []
        for block in blocks:
            block_hash = hashes[block]
            assert block_hash is not None, "a block that is evicted has content"
            block_hashes.append(block_hash)
            counts.append(known[block] >> 8)
        self._remembered.keep(marks_of(block_hashes), counts)

    def _scores(self, grade: int) -> Iterator[tuple[int, int, BlockId]]:
        its_worth = int(self._worth[self._trial.weight * NUM_GRADES + grade])
        for block in self._ring(self._num_blocks + grade):
            yield int(self._freed_at[block]) + its_worth, grade, block

    def problems(self) -> list[str]:
        """As `FreeQueue.problems`; grades that are not their ring's as well."""
        found, num_blank = self._ring_problems(NULL_BLOCK)
        if num_blank != self._num_blank:
            found.append(f"free queue: {num_blank} blocks are without content, {self._num_blank} counted")
        num_free = num_blank
        for grade in range(NUM_GRADES):
            problems, num_blocks = self._ring_problems(self._num_blocks + grade)
            found += problems
            num_free += num_blocks
            if not problems:
                found += [
                    f"free queue: block {block} lies among those of grade {grade}"
                    for block in self._ring(self._num_blocks + grade)
                    if self._known[block] & 0xFF != grade
                ]
        if num_free != self._num_free:
            found.append(f"free queue: {num_free} blocks are linked, {self._num_free} counted")
        return found

    def to_state(self) -> dict[str, Any]:
        """As `FreeQueue.to_state`, with all that is known."""
        return {
            **super().to_state(),
            "num_blank": self._num_blank,
            "now": self._now,
            "known": pack_vector(self._known),
            "freed_at": pack_long_vector(self._freed_at),
            "evicted_at": self._evicted_at,
            "remembered": self._remembered.to_state(),
            "trial": self._trial.to_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """As `FreeQueue.load`."""
        super().load(state)
        self._num_blank = state["num_blank"]
        self._now = state["now"]
        self._known = unpack_vector(state["known"])
        self._freed_at = unpack_long_vector(state["freed_at"])
        self._evicted_at = state["evicted_at"]
        self._remembered.load(state["remembered"])
        self._trial.load(state["trial"])
