"""What requests cost, by route and outcome: how long they took, and how many there are at the moment."""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from blockyard.core.histogram import Histogram
from blockyard.server.histogram import add_histogram

BOUNDS_S = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

NO_ROUTE = "none"
"""The route of all that none answered: unknown paths, files of ``/docs``, what was refused before."""


class RequestFigures(Collector):
    """Counts requests.

    Args:
        num_in_flight: Says how many are being worked on.
    """

    def __init__(self, num_in_flight: Callable[[], int]) -> None:
        self._num_in_flight = num_in_flight
        self._by_status: dict[tuple[str, int], Histogram] = {}  # several of one outcome are the same
        self._durations: dict[tuple[str, str], Histogram] = {}

    def answered(self, route: str | None, status: int, duration_s: float) -> None:
        """Count one request.

        Args:
            route: Its route's template; None where none answered.
            status: HTTP status of its answer; 0 where none was sent.
            duration_s: How long it took.
        """
        route = NO_ROUTE if route is None else route
        known = self._by_status.get((route, status))
        if known is None:
            known = self._by_status[route, status] = self._of(route, outcome(status))
            self._of(route, "failed")  # there from the first request on: then the first failure is a rise
        known.observe(duration_s)

    def counts(self, route: str) -> list[int]:
        """How many requests of ``route``, refused ones too, took how long: a number a range of `BOUNDS_S`."""
        known = (self._durations.get((route, result)) for result in ("ok", "refused"))
        ranges = [[0] * (len(BOUNDS_S) + 1), *(histogram.counts for histogram in known if histogram)]
        return [sum(each) for each in zip(*ranges, strict=True)]

    def _of(self, route: str, result: str) -> Histogram:
        return self._durations.setdefault((route, result), Histogram(BOUNDS_S))

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time, as for `PoolsCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See `Collector.collect`."""
        yield GaugeMetricFamily(
            "blockyard_requests_in_flight",
            "Requests that are being worked on, this one too.",
            self._num_in_flight(),
        )
        durations = HistogramMetricFamily(
            "blockyard_request_duration_seconds",
            "From a request's head to the end of its answer, by the route's template. Outcomes: ok; refused "
            "(4xx); unavailable (503); failed (other 5xx); aborted, by a caller that hung up.",
            labels=["route", "outcome"],
        )
        for labels, histogram in list(self._durations.items()):
            add_histogram(durations, histogram, labels)
        yield durations


def outcome(status: int) -> str:
    """What became of a request, in one of five words; ``status`` is 0 where no answer was sent."""
    if status == 0:
        return "aborted"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "unavailable"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "failed"
    return "refused" if status >= HTTPStatus.BAD_REQUEST else "ok"
