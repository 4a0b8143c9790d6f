"""What `GET /metrics` tells of a node and its cluster: read at a scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blockyard.server.cluster.figures import ClusterFigures
from blockyard.server.cluster.report import ClusterReport


class ClusterCollector(Collector):
    """The metrics of a node whose report has been made.

    Args:
        report: Of this moment.
        figures: What has happened so far.
    """

    def __init__(self, report: ClusterReport, figures: ClusterFigures) -> None:
        self._report = report
        self._take_overs = dict(figures.take_overs)
        self._num_lost_pools = figures.num_lost_pools
        self._num_lease_lapses = figures.num_lease_lapses

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time, as for `PoolsCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """What is now, then what has happened."""
        report = self._report
        yield _gauge("connected", "1 while the node reaches NATS, else 0.", report.is_connected)
        yield _gauge(
            "lease_seconds",
            "How long the node may go on answering for its pools, if it hears nothing more of NATS.",
            report.lease_left_ms / 1_000,
        )
        yield _gauge("nodes", "Nodes whose leases have not run out.", report.num_live_nodes)
        yield _gauge("owned_pools", "Pools that the node answers for.", report.num_pools("owner"))
        yield _gauge("followed_pools", "Pools that it holds warm for others.", report.num_pools("standby"))
        yield _gauge(
            "follower_lag_messages",
            "Messages that it has not applied yet, of the pool that it follows and is most behind with.",
            report.max_lag,
        )
        take_overs = CounterMetricFamily(
            "blockyard_cluster_take_overs",
            "Pools that the node came to own: new ones, those handed over as planned, those forced from an "
            "owner whose lease had run out, and those regained after its own had.",
            labels=["kind"],
        )
        for how, number in self._take_overs.items():
            take_overs.add_metric([how.value], number)
        yield take_overs
        yield _counter(
            "lost_pools", "Pools that the node was fenced off from by another owner.", self._num_lost_pools
        )
        yield _counter("lease_lapses", "Times that the node's lease ran out.", self._num_lease_lapses)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"blockyard_cluster_{name}", text, value)


def _counter(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(f"blockyard_cluster_{name}", text, value)
