"""What came of the requests of a replay, noted as it runs and summed up at its end."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from blockyard.server.commands.replay.request import Request

SERIES_POINTS = 60
"""Points of the hit rate over the run, at most."""

_PROGRESS_EVERY = 50


@dataclass(frozen=True, slots=True)
class Point:
    """The hit rate of the requests that end at the ``num_requests``-th, since the point before."""

    num_requests: int
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A replay, summed up.

    Attributes:
        num_requests: All of them.
        input_tokens: Of all of them, those refused included.
        cached_tokens: Found in the cache.
        hit_rate: Cached share of the input tokens, 0 to 1.
        num_refused: Requests for which too few blocks were free.
        seconds: From the first call to the last reply.
        requests_per_s: The requests by the seconds.
        latency_p50_ms, latency_p99_ms: Of the calls that allocate.
        hit_rate_series: The hit rate over the run.
    """

    num_requests: int
    input_tokens: int
    cached_tokens: int
    hit_rate: float
    num_refused: int
    seconds: float
    requests_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    hit_rate_series: Sequence[Point]


class Tally:
    """The requests' fates. Threads may note at once, each request once.

    Args:
        requests: What is replayed, at least one.
        on_progress: Told now and then how many are done.
    """

    def __init__(self, requests: Sequence[Request], on_progress: Callable[[int], None]) -> None:
        self._requests = requests
        self._on_progress = on_progress
        self._cached = [0] * len(requests)
        self._latencies_s: list[float] = []
        self._num_refused = 0
        self._num_done = 0
        self._lock = threading.Lock()

    def served(self, number: int, num_cached_tokens: int) -> None:
        """Request ``number`` got its blocks, ``num_cached_tokens`` of them cached."""
        with self._lock:
            self._cached[number] = num_cached_tokens
            self._done()

    def refused(self) -> None:
        """A request got nothing: too few blocks were free."""
        with self._lock:
            self._num_refused += 1
            self._done()

    def waited(self, seconds: float) -> None:
        """A call that allocates took ``seconds``."""
        with self._lock:
            self._latencies_s.append(seconds)

    def outcome(self, seconds: float) -> Outcome:
        """The sum of a run of ``seconds``."""
        cached = self._cached
        num_input = sum(request.num_tokens for request in self._requests)
        latencies_ms = sorted(1000 * latency for latency in self._latencies_s)
        return Outcome(
            num_requests=len(cached),
            input_tokens=num_input,
            cached_tokens=sum(cached),
            hit_rate=sum(cached) / num_input,
            num_refused=self._num_refused,
            seconds=seconds,
            requests_per_s=len(cached) / seconds,
            latency_p50_ms=_percentile(latencies_ms, 50),
            latency_p99_ms=_percentile(latencies_ms, 99),
            hit_rate_series=self._series(cached),
        )

    def _done(self) -> None:
        """With the lock held."""
        self._num_done += 1
        if self._num_done % _PROGRESS_EVERY == 0:
            self._on_progress(self._num_done)

    def _series(self, cached: Sequence[int]) -> list[Point]:
        width = ceil(len(cached) / SERIES_POINTS)
        points = []
        for start in range(0, len(cached), width):
            num_input = sum(request.num_tokens for request in self._requests[start : start + width])
            num_cached = sum(cached[start : start + width])
            points.append(Point(min(start + width, len(cached)), num_cached / num_input))
        return points


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that ``percent`` of all are at most."""
    return ordered[ceil(len(ordered) * percent / 100) - 1]
