"""What is known of a block's content when it is to be kept or evicted: how often it was used, and with what.

Two levels make a grade. The count level is how often content was asked for, in half octaves: 0 for once, 2
for twice, 4 for four times. The run level says how few blocks were published together with it, as what comes
alone, a turn of a conversation, returns more often than what comes in bulk.

    blocks at once     1 .. 3   4 .. 15   16 .. 63   64 and more
    run level             3        2          1          0

A grade is worth time: a block may stay as much longer, beyond one of the lowest grade that was freed when it
was. How much is for the weight to say, from none at all, which is least recently used, to so much that almost
nothing but the count decides. Down a chain of blocks neither level ever rises, so that at every weight what
is behind a block goes before it.
"""

from typing import Final

MAX_COUNT: Final = 63
NUM_RUN_LEVELS: Final = 4
NUM_GRADES: Final = 12 * NUM_RUN_LEVELS

QUARTER_WEIGHTS: Final = (0, 1, 2, 4, 8, 16, 32, 64)
"""The weights that there are, in quarters. At one of 1, doubling the count is worth as many further uses of
blocks as the pool has blocks."""
NUM_WEIGHTS: Final = len(QUARTER_WEIGHTS)

TICKS: Final = 16
"""Parts of the time in which as many blocks are used as the pool has, in which worth is told."""

_MAX_RUN_QUARTERS: Final = 8
"""The run level is given no larger weight, and a step of it is worth what a doubling of the count is."""


def count_level(count: int) -> int:
    """The level of content that was asked for ``count`` times, 1 to `MAX_COUNT`: 2 log2, rounded down."""
    return (count * count).bit_length() - 1


def run_level(num_blocks: int) -> int:
    """The level of content that was published along with so many blocks, itself included; at least 1."""
    return max(NUM_RUN_LEVELS - (num_blocks.bit_length() + 1) // 2, 0)


def grade_of(level_of_count: int, level_of_run: int) -> int:
    """The grade of the two."""
    return level_of_count * NUM_RUN_LEVELS + level_of_run


def higher_of_both(grade: int, other: int) -> int:
    """The grade with the higher one of each level of two."""
    level_of_count = max(grade // NUM_RUN_LEVELS, other // NUM_RUN_LEVELS)
    return grade_of(level_of_count, max(grade % NUM_RUN_LEVELS, other % NUM_RUN_LEVELS))


def worth(weight: int, grade: int) -> int:
    """How long ``grade`` is worth keeping at the weight of this index, in `TICKS`."""
    quarters = QUARTER_WEIGHTS[weight]
    of_count = quarters * (grade // NUM_RUN_LEVELS)
    of_run = min(quarters, _MAX_RUN_QUARTERS) * (grade % NUM_RUN_LEVELS)
    return (of_count * TICKS) // 8 + (of_run * TICKS) // 4


WORTHS: Final = tuple(worth(weight, grade) for weight in range(NUM_WEIGHTS) for grade in range(NUM_GRADES))
"""All of them, in `TICKS`: of the first weight, by grade, and so on."""
