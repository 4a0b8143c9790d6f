"""How Prometheus is shown a histogram: prometheus_client's own takes two locks for each value it counts."""

from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

from blockyard.core.histogram import Histogram


def add_histogram(family: HistogramMetricFamily, histogram: Histogram, labels: Sequence[str] = ()) -> None:
    """Show ``histogram`` in ``family`` under the values of its labels."""
    names = [*map(float.__repr__, map(float, histogram.bounds)), "+Inf"]
    family.add_metric(labels, list(zip(names, accumulate(histogram.counts), strict=True)), histogram.sum)
