"""How long hot calls took in the last seconds, told from histograms that only ever rise."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

WINDOW_S = 10.0
"""What is looked back on, if somebody looks often enough."""

SAMPLE_S = 1.0
"""Between two samples."""

Counts = dict[str, list[int]]
"""Per call, how many took how long: one number a range of the histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLatency:
    """Calls of one kind, to all pools, in the last seconds.

    Attributes:
        call: The last part of their path.
        num_calls: How many there were.
        p50_ms: Half of them took no longer.
        p99_ms: 99 of 100 took no longer.
    """

    call: str
    num_calls: int
    p50_ms: float
    p99_ms: float


class LatencyWindow:
    """Latency over a sliding window; costs nothing while nobody looks.

    Args:
        bounds_s: Of the histograms' ranges, rising.
        read: Reads the histograms.
        clock_s: A steady clock.
    """

    def __init__(
        self,
        bounds_s: Sequence[float],
        read: Callable[[], Counts],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds_s = bounds_s
        self._read = read
        self._clock_s = clock_s
        self._samples: deque[tuple[float, Counts]] = deque()
        self._latest: list[CallLatency] = []

    def latest(self) -> list[CallLatency]:
        """Calls that were made in the window; the same for `SAMPLE_S`, whoever asks."""
        now_s = self._clock_s()
        if self._samples and now_s < self._samples[-1][0] + SAMPLE_S:
            return self._latest
        counts = self._read()
        self._samples.append((now_s, counts))
        while self._samples[0][0] < now_s - WINDOW_S:
            self._samples.popleft()
        before = self._samples[0][1]
        self._latest = [
            self._of(call, [now - then for now, then in zip(ranges, before[call], strict=True)])
            for call, ranges in counts.items()
            if ranges != before[call]
        ]
        return self._latest

    def _of(self, call: str, counts: list[int]) -> CallLatency:
        return CallLatency(
            call=call,
            num_calls=sum(counts),
            p50_ms=round(quantile(self._bounds_s, counts, 0.5) * 1e3, 3),
            p99_ms=round(quantile(self._bounds_s, counts, 0.99) * 1e3, 3),
        )


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """The value that ``share`` of all values are not above, as if they lay evenly in their range.

    Bounds 1, 2, 4 and counts 0, 10, 10, 0: of 20 values, 15 are not above 3. What lies in the last range,
    which has no end, counts as its beginning.

    Args:
        bounds: Of the ranges, rising, see `Histogram`.
        counts: One more than bounds; not all 0.
        share: Above 0, up to 1.
    """
    rank = share * sum(counts)
    reached = list(accumulate(counts))
    number = bisect_left(reached, rank)
    if number == len(bounds):
        return bounds[-1]
    begin = bounds[number - 1] if number else 0.0
    return begin + (bounds[number] - begin) * (1 - (reached[number] - rank) / counts[number])
