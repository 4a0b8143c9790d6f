"""The trial of weights beside real caches, one per weight, that hold the highest scores."""

import random
from collections.abc import Callable, Iterator

import pytest

from blockyard.core.grade import MAX_COUNT, NUM_RUN_LEVELS, NUM_WEIGHTS, TICKS, count_level, grade_of, worth
from blockyard.core.weight_trial import WeightTrial


class Caches:
    """Those of ``keep`` blocks that hold what had the highest scores when the last tick ended.

    Of blocks with the lowest score of all that are held, as many have a place as is left; which, nobody says.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._used: dict[int, tuple[int, int, int]] = {}
        """Per mark: the tick that its last use was in, its count, and the run level that it came with."""
        self._lowest = [0] * NUM_WEIGHTS
        self._share = [1.0] * NUM_WEIGHTS
        self._tick = 0

    def use(self, mark: int, level_of_run: int) -> list[float]:
        """Returns the hit of each cache, or that part of one that is as likely."""
        hits = [0.0] * NUM_WEIGHTS
        if mark in self._used:
            for weight, lowest in enumerate(self._lowest):
                score = self._score(mark, weight)
                hits[weight] = self._share[weight] if score == lowest else float(score > lowest)
        _, count, run = self._used.get(mark, (0, 0, level_of_run))
        self._used[mark] = (self._tick + 1, min(count + 1, MAX_COUNT), run)
        return hits

    def end_tick(self) -> None:
        self._tick += 1
        for weight in range(NUM_WEIGHTS):
            scores = sorted((self._score(mark, weight) for mark in self._used), reverse=True)
            if len(scores) >= self._keep:
                lowest = self._lowest[weight] = scores[self._keep - 1]
                self._share[weight] = (self._keep - scores.index(lowest)) / scores.count(lowest)

    def _score(self, mark: int, weight: int) -> int:
        tick, count, run = self._used[mark]
        return tick + worth(weight, grade_of(count_level(count), run))


@pytest.mark.parametrize(("num_blocks", "num_ticks"), [(2, 200), (48, 120), (1_600, 60)])
def test_each_weight_gains_what_a_cache_of_the_highest_scores_has_more_than_the_latest(
    num_blocks: int, num_ticks: int
) -> None:
    """Of the sample, and as caches are when a tick ends; the smallest pool's ticks are of a single block."""
    draws = random.Random(num_blocks)
    trial = WeightTrial(num_blocks)
    every, keep = trial._every, trial._keep
    caches = Caches(keep)
    num_gains = 0
    for tick in range(1, num_ticks):
        for _ in range(draws.randint(0, 5)):
            first = draws.randrange(40) ** 2 * num_blocks // 300
            marks = [*range(first, first + draws.randint(1, max(num_blocks // 8, 1)))]
            run = draws.randrange(NUM_RUN_LEVELS)
            before = trial.to_state()["gains"]
            trial.note_used(marks, run, (tick - 1) * max(num_blocks // TICKS, 1))
            hits = [caches.use(mark, run) for mark in marks if mark % every == 0]
            found = [sum(column) for column in zip(*hits, strict=True)] or [0.0] * NUM_WEIGHTS
            gains = [after - gain for after, gain in zip(trial.to_state()["gains"], before, strict=True)]
            assert gains == pytest.approx([each - found[0] for each in found], abs=1e-6)
            num_gains += any(gains)
        caches.end_tick()
        trial.note_used([], 0, tick * max(num_blocks // TICKS, 1))
    assert num_gains > 10


def passing_fashions() -> Iterator[list[int]]:
    """What there is just room for is asked for in turns, six times; then something else, and never again."""
    for number in range(1_200):
        fashion, turn = number // (6 * 19), number % 19
        first = (fashion * 19 + turn) * 8
        yield [*range(first, first + 8)]


def standing_favourites() -> Iterator[list[int]]:
    """The same are asked for again and again, after five times as much as there is room for."""
    draws = random.Random(1)
    for number in range(2_000):
        first = (number // 10) % 10 * 8 if number % 10 == 0 else draws.randrange(10**3, 10**9)
        yield [*range(first, first + 8)]


@pytest.mark.parametrize(
    ("requests", "weights"), [(passing_fashions, [0]), (standing_favourites, [*range(3, NUM_WEIGHTS)])]
)
def test_the_weight_is_what_the_stream_deserves(
    requests: Callable[[], Iterator[list[int]]], weights: list[int]
) -> None:
    trial, now = WeightTrial(160), 0
    for marks in requests():
        now += len(marks)
        trial.note_used(marks, 0, now)
    assert trial.weight in weights


def test_a_trial_goes_on_from_a_snapshot_as_if_there_had_been_none() -> None:
    draws = random.Random(3)
    trial, again, now = WeightTrial(160), WeightTrial(160), 0
    for number in range(600):
        marks = [draws.randrange(700) for _ in range(8)]
        now += len(marks)
        trial.note_used(marks, number % NUM_RUN_LEVELS, now)
        if number >= 300:
            again.note_used(marks, number % NUM_RUN_LEVELS, now)
        if number == 299:
            again.load(trial.to_state())
    assert again.to_state() == trial.to_state()
