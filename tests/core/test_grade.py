"""Grades, by the table of their module, and what they are worth."""

from itertools import pairwise

import pytest

from blockyard.core.grade import (
    MAX_COUNT,
    NUM_GRADES,
    NUM_RUN_LEVELS,
    NUM_WEIGHTS,
    QUARTER_WEIGHTS,
    TICKS,
    count_level,
    grade_of,
    run_level,
    worth,
)


@pytest.mark.parametrize(
    ("num_blocks", "level"), [(1, 3), (3, 3), (4, 2), (15, 2), (16, 1), (63, 1), (64, 0), (10_000, 0)]
)
def test_the_fewer_blocks_come_at_once_the_higher_is_their_level(num_blocks: int, level: int) -> None:
    assert run_level(num_blocks) == level


def test_a_level_is_half_an_octave_of_the_count() -> None:
    assert [count_level(count) for count in (1, 2, 3, 4, 8, 16, 32)] == [0, 2, 3, 4, 6, 8, 10]
    assert grade_of(count_level(MAX_COUNT), NUM_RUN_LEVELS - 1) == NUM_GRADES - 1


@pytest.mark.parametrize("weight", range(NUM_WEIGHTS))
def test_at_every_weight_a_higher_level_is_worth_no_less(weight: int) -> None:
    levels = range(NUM_GRADES // NUM_RUN_LEVELS)
    for run in range(NUM_RUN_LEVELS):
        by_count = [worth(weight, grade_of(level, run)) for level in levels]
        assert all(lower <= higher for lower, higher in pairwise(by_count))
    for level in levels:
        by_run = [worth(weight, grade_of(level, run)) for run in range(NUM_RUN_LEVELS)]
        assert all(lower <= higher for lower, higher in pairwise(by_run))


def test_at_a_weight_of_one_doubling_the_count_is_worth_a_pool_of_uses_and_at_none_nothing() -> None:
    one = QUARTER_WEIGHTS.index(4)
    assert worth(one, grade_of(count_level(8), 0)) - worth(one, grade_of(count_level(4), 0)) == TICKS
    assert {worth(0, grade) for grade in range(NUM_GRADES)} == {0}
