"""A histogram for the hot path: a bisection and two additions a value.

Each range ends at a bound and includes it; the last has no end:

    bounds        1    2    4
    ranges    ..1] ..2] ..4] ..inf
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counted by one thread at a time, read by any.

    Args:
        bounds: Of the ranges, rising.

    Attributes:
        bounds: Likewise.
        counts: Values in each range, that without an end included.
        sum: Of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> "Histogram":
        """As it is now."""
        copy = Histogram(self.bounds)
        copy.counts, copy.sum = self.counts.copy(), self.sum
        return copy
