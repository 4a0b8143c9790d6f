"""Draws from a seed, alike on every machine.

Only `random.random`, the four operations and square roots are used: other functions, powers and logarithms
among them, differ in the last bit from one C library to another.
"""

import random
from bisect import bisect
from itertools import accumulate
from math import sqrt


class Draw:
    """What is drawn depends on ``seed``, and on what was drawn before."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self._random() < probability

    def between(self, low: float, high: float) -> float:
        """Evenly from ``low`` to below ``high``."""
        return low + (high - low) * self._random()

    def count(self, low: int, high: int) -> int:
        """Evenly from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def around(self, mean: int) -> int:
        """From 1 to twice the mean, most of them around it."""
        return 1 + int(mean * (self._random() + self._random()))

    def heavy(self, median: float, most: float) -> float:
        """A heavy tail, as of think times: half are below ``median``, one in n + 1 above n times it.

        Source: the Lomax distribution with a shape of 1, cut off at ``most``.
        """
        return min(median * (1 / (1 - self._random()) - 1), most)

    def tokens(self, low: int, median: int, most: int) -> int:
        """A length with a heavy tail: ``low`` at least, and half of them below ``median``."""
        return low + int(self.heavy(median - low, most - low))

    def rank(self, popularity: "Popularity") -> int:
        """Which of its things is asked for, from 0 on."""
        return bisect(popularity.running_sums, self._random() * popularity.running_sums[-1])


class Popularity:
    """How often each of ``count`` things is asked for, by Zipf's law: the k-th 1/k as often as the first.

    Where it ``is_mild``, 1/√k as often.
    """

    def __init__(self, count: int, *, is_mild: bool = False) -> None:
        weights = (1 / sqrt(rank) if is_mild else 1 / rank for rank in range(1, count + 1))
        self.running_sums = list(accumulate(weights))
