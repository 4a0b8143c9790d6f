"""Metrics without those of pools that the scraper may not know of, whoever collects them."""

from collections.abc import Iterable, Iterator
from copy import copy

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from blockyard.server.access.principal import Principal


class ReachedPools(Collector):
    """What ``collector`` collects, without the samples of a ``pool`` that ``principal`` does not reach."""

    def __init__(self, collector: Collector, principal: Principal) -> None:
        self._collector = collector
        self._principal = principal

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time, as for `PoolsCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See `Collector.collect`."""
        for metric in self._collector.collect():
            reached = copy(metric)
            reached.samples = [each for each in metric.samples if self._is_reached(each.labels)]
            yield reached

    def _is_reached(self, labels: dict[str, str]) -> bool:
        return "pool" not in labels or self._principal.reaches(labels["pool"])
