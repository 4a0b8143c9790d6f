"""Which weight the grades of blocks deserve, found by trying all of them at once on a sample of the content.

For every weight there is a cache that would hold as many blocks as the pool, and that keeps those of the
highest score: the time of their last use and what their grade is worth. None of them is ever built. As scores
do not change between two uses, what such a cache holds is everything above some score; and how many blocks of
the sample score how much, in ticks, is easily counted:

    blocks
      |      .:.  :.::
      |   .:::::::::::::.
      +---------|------------- score, in ticks
             lowest    now + worth
      evicted   |   held

When content is used again, each cache that held it has a hit. What one has more than least recently used is
its gain; that of the latest uses counts the most. A weight is chosen for its gain less some of its standard
deviation, request by request, so that few lucky requests are no reason to leave what is known to be good.
Least recently used is left only for a gain that is beyond doubt.
"""

from itertools import accumulate
from math import sqrt
from typing import Any, Final

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.grade import (
    MAX_COUNT,
    NUM_GRADES,
    NUM_RUN_LEVELS,
    NUM_WEIGHTS,
    TICKS,
    WORTHS,
    count_level,
    grade_of,
    worth,
)
from blockyard.core.packing import pack_long_vector, unpack_long_vector

_MAX_SAMPLE: Final = 1_536
"""Blocks of the sample that each cache holds, at most."""
_NUM_WAYS: Final = 8
"""Places that a mark has: where all are taken, the one that was used the longest ago gives way."""
_FIRST_WEIGHT: Final = 2
"""Half: it is good enough for most until more is known."""
_FIRST_FAVOR: Final = 0.06
"""What speaks for it at the beginning, as a share of the blocks that each cache holds of the sample: as many
times that as chance has more to say where only some of the content is looked at, the root of one in how many.
"""
_FAVOR_HALF_LIFE: Final = 4
"""After so many times the pool's blocks were used, half as much does."""
_DOUBT: Final = 0.4
"""Standard deviations that are taken off a gain."""
_CAUTION: Final = 1.0
"""Likewise, how many more a gain has to be worth before least recently used is left."""
_INERTIA: Final = 0.1
"""Likewise, by how many another weight has to be better."""
_HALF_LIFE: Final = 10
"""After so many times the pool's blocks were used, what was gained counts half."""
_MIN_HALF_LIFE_BLOCKS: Final = 20_000
"""But in no fewer uses of blocks: those of a small pool turn over within few requests."""
_LN_2: Final = 0.6931471805599453
_SPARE_TICKS: Final = 1_024
"""Slots of a ring beyond twice what the highest grade is worth."""
_UNKNOWN: Final = -(2**62)


class WeightTrial:
    """Of a pool of ``num_blocks`` usable blocks, at least 1.

    Attributes:
        weight: The index of the weight that is best, as far as is known.
    """

    __slots__ = (
        "_bases",
        "_changes",
        "_deviations",
        "_every",
        "_favor",
        "_gains",
        "_gone_before",
        "_held_after",
        "_keep",
        "_lowest",
        "_marks",
        "_num_held",
        "_num_sets",
        "_rings",
        "_seen",
        "_shift",
        "_staying",
        "_tick",
        "_tick_blocks",
        "_worth",
        "weight",
    )

    def __init__(self, num_blocks: int) -> None:
        self._shift = (num_blocks // _MAX_SAMPLE).bit_length()
        self._every = 1 << self._shift
        self._keep = max(num_blocks >> self._shift, 1)
        self._tick_blocks = max(num_blocks // TICKS, 1)
        self._tick = 0
        self._num_sets = 1 << (self._keep - 1).bit_length()
        self._marks = vec[i64]([0] * (_NUM_WAYS * self._num_sets))
        self._seen = vec[i64]([0] * (_NUM_WAYS * self._num_sets))
        """Of each mark: the tick of its last use, its count and its grade, in one number; 0 for none."""
        self._worth = vec[i64](WORTHS)
        sizes = [
            1 << (2 * worth(weight, NUM_GRADES - 1) + _SPARE_TICKS).bit_length()
            for weight in range(NUM_WEIGHTS)
        ]
        self._bases = vec[i64](accumulate(sizes, initial=0))
        self._rings = vec[i64]([0] * sum(sizes))
        """Of each weight: by score, the blocks of it that are held."""
        self._lowest = vec[i64]([0] * NUM_WEIGHTS)
        self._held_after = vec[i64]([_UNKNOWN] * NUM_GRADES)
        """Of each grade: blocks that were last used after this tick are held at every weight."""
        self._gone_before = vec[i64]([0] * NUM_GRADES)
        """Likewise, those last used before this one at none."""
        self._num_held = vec[i64]([0] * NUM_WEIGHTS)
        self._changes: dict[int, int] = {}
        """By tick and grade, how many more blocks there are than the rings know of."""
        half_life = max(_HALF_LIFE * num_blocks, _MIN_HALF_LIFE_BLOCKS) / self._tick_blocks
        self._staying = 1 - _LN_2 / half_life
        self._gains = [0.0] * NUM_WEIGHTS
        self._favor = _FIRST_FAVOR * self._keep * sqrt(self._every)
        self._deviations = [0.0] * NUM_WEIGHTS
        self.weight = _FIRST_WEIGHT

    def note_used(self, marks: list[int], level_of_run: int, now: int) -> None:
        """What ``marks`` stand for was asked for by one request.

        Args:
            marks: Of blocks.
            level_of_run: The run level of those that are new.
            now: Blocks used so far.
        """
        every_mask: i64 = self._every - 1
        hits: list[float] | None = None
        mark: i64
        for mark in marks:
            if mark & every_mask == 0:
                if hits is None:
                    hits = [0.0] * NUM_WEIGHTS
                self._use(mark, level_of_run, hits)
        if hits is not None:
            least_recently_used = hits[0]
            for weight in range(1, NUM_WEIGHTS):
                gain = hits[weight] - least_recently_used
                if gain:
                    self._gains[weight] += gain
                    self._deviations[weight] += gain * gain
        while self._tick < now // self._tick_blocks:
            self._end_tick()

    def _use(self, mark: "i64", level_of_run: int, hits: list[float]) -> None:
        """One block was used; ``hits`` gets those of each cache."""
        marks, seen = self._marks, self._seen
        first = ((mark >> self._shift) & (self._num_sets - 1)) * _NUM_WAYS
        slot = oldest = first
        at = first
        while at < first + _NUM_WAYS:
            if marks[at] == mark and seen[at]:
                break
            if seen[at] < seen[oldest]:
                oldest = at
            at += 1
        count = 1
        level = 0
        if at < first + _NUM_WAYS:
            slot = at
            before = seen[slot]
            tick, grade = before >> 16, before & 0xFF
            if self._held_after[grade] == _UNKNOWN:
                self._find_disputed(grade)
            if self._held_after[grade] >= tick >= self._gone_before[grade]:
                self._note_hits(tick, grade, hits)
            self._change(tick, grade, -1)
            count = min(((before >> 8) & 0xFF) + 1, MAX_COUNT)
            level = count_level(count)
            level_of_run = grade % NUM_RUN_LEVELS
        else:
            slot = oldest
            before = seen[slot]
            if before:
                self._change(before >> 16, before & 0xFF, -1)
        grade = grade_of(level, level_of_run)
        marks[slot] = mark
        seen[slot] = ((self._tick + 1) << 16) | (count << 8) | grade
        self._change(self._tick + 1, grade, 1)

    def _note_hits(self, tick: int, grade: int, hits: list[float]) -> None:
        """A block of ``grade``, last used in ``tick``, is used again."""
        for weight in range(NUM_WEIGHTS):
            score = tick + self._worth[weight * NUM_GRADES + grade]
            lowest = self._lowest[weight]
            if score > lowest:
                hits[weight] += 1
            elif score == lowest:
                in_lowest = self._rings[self._slot_of(weight, lowest)]
                room = self._keep - (self._num_held[weight] - in_lowest)
                hits[weight] += min(room / int(in_lowest), 1.0) if in_lowest else 1.0

    def _change(self, tick: int, grade: int, num_blocks: int) -> None:
        cell = (tick << 8) | grade
        self._changes[cell] = self._changes.get(cell, 0) + num_blocks

    def _slot_of(self, weight: int, score: int) -> int:
        base = self._bases[weight]
        return base + score % (self._bases[weight + 1] - base)

    def _end_tick(self) -> None:
        """Bring the caches up to date, and choose anew."""
        self._tick += 1
        changes, self._changes = self._changes, {}
        for weight in range(NUM_WEIGHTS):
            lowest = max(self._lowest[weight], 0)
            num_held = self._num_held[weight]
            for cell, change in changes.items():
                score = (cell >> 8) + self._worth[weight * NUM_GRADES + (cell & 0xFF)]
                if change and score >= lowest:
                    self._rings[self._slot_of(weight, score)] += change
                    num_held += change
            highest = self._tick + 1 + self._worth[weight * NUM_GRADES + NUM_GRADES - 1]
            size = self._bases[weight + 1] - self._bases[weight]
            while True:
                slot = self._slot_of(weight, lowest)
                if num_held - self._rings[slot] < self._keep and highest - lowest < size:
                    break
                num_held -= self._rings[slot]
                self._rings[slot] = 0
                lowest += 1
            self._lowest[weight], self._num_held[weight] = lowest, num_held
            self._gains[weight] *= self._staying
            self._deviations[weight] *= self._staying
        for grade in range(NUM_GRADES):
            self._held_after[grade] = _UNKNOWN
        self._choose()

    def _find_disputed(self, grade: "i64") -> None:
        """Find out of which blocks of a grade it is not clear that all caches hold them, or none."""
        latest = earliest = self._lowest[0]
        at = grade
        for lowest in self._lowest:
            held_from = lowest - self._worth[at]
            latest = max(latest, held_from)
            earliest = min(earliest, held_from)
            at += NUM_GRADES
        self._held_after[grade] = latest
        self._gone_before[grade] = earliest

    def _choose(self) -> None:
        spread = [sqrt(each) for each in self._deviations]
        sure = [gain - _DOUBT * each for gain, each in zip(self._gains, spread, strict=True)]
        self._favor *= 1 - _LN_2 / (_FAVOR_HALF_LIFE * TICKS)
        sure[_FIRST_WEIGHT] += self._favor
        best = sure.index(max(sure))
        if not self.weight and sure[best] < _CAUTION * spread[best]:
            return
        if sure[best] > sure[self.weight] + _INERTIA * spread[best]:
            self.weight = best

    def to_state(self) -> dict[str, Any]:
        """The trial as plain data."""
        return {
            "tick": self._tick,
            "marks": pack_long_vector(self._marks),
            "seen": pack_long_vector(self._seen),
            "rings": pack_long_vector(self._rings),
            "lowest": pack_long_vector(self._lowest),
            "num_held": pack_long_vector(self._num_held),
            "changes": [list(change) for change in self._changes.items()],
            "gains": list(self._gains),
            "deviations": list(self._deviations),
            "favor": self._favor,
            "weight": self.weight,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become the trial that ``state`` was taken from, of as many blocks."""
        self._tick = state["tick"]
        self._marks = unpack_long_vector(state["marks"])
        self._seen = unpack_long_vector(state["seen"])
        self._rings = unpack_long_vector(state["rings"])
        self._lowest = unpack_long_vector(state["lowest"])
        self._num_held = unpack_long_vector(state["num_held"])
        self._changes = {int(cell): int(change) for cell, change in state["changes"]}
        self._gains = list(state["gains"])
        self._deviations = list(state["deviations"])
        self._favor = state["favor"]
        self.weight = state["weight"]
