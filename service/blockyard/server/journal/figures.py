"""What the journal costs: its appends and its snapshots."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from blockyard.core.histogram import Histogram
from blockyard.server.histogram import add_histogram

APPEND_BOUNDS_S = (
    1e-5,
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1,
)
COMMAND_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SNAPSHOT_BOUNDS_S = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


class JournalFigures(Collector):
    """Counts appends and snapshots: each of one thread at a time."""

    def __init__(self) -> None:
        self._append_s = Histogram(APPEND_BOUNDS_S)
        self._append_commands = Histogram(COMMAND_BOUNDS)
        self._snapshot_s = Histogram(SNAPSHOT_BOUNDS_S)
        self._num_bytes = 0
        self._num_taken = 0
        self._num_failed = 0

    def appended(self, duration_s: float, num_commands: int, num_bytes: int) -> None:
        """Count one append."""
        self._append_s.observe(duration_s)
        self._append_commands.observe(num_commands)
        self._num_bytes += num_bytes

    def snapshot_taken(self, duration_s: float) -> None:
        """Count one snapshot."""
        self._num_taken += 1
        self._snapshot_s.observe(duration_s)

    def snapshot_failed(self) -> None:
        """Count one that was not taken."""
        self._num_failed += 1

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time, as for `PoolsCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See `Collector.collect`."""
        append = HistogramMetricFamily(
            "blockyard_journal_append_duration_seconds",
            "How long an append took, to the end of the disk's part where --sync is full.",
        )
        add_histogram(append, self._append_s)
        commands = HistogramMetricFamily(
            "blockyard_journal_append_commands", "Commands written with one append."
        )
        add_histogram(commands, self._append_commands)
        num_bytes = CounterMetricFamily(
            "blockyard_journal_appended_bytes", "Bytes of commands written to the journal.", self._num_bytes
        )
        snapshots = CounterMetricFamily(
            "blockyard_journal_snapshots",
            "Snapshots by outcome: those taken, and those that failed and are tried again.",
            labels=["outcome"],
        )
        snapshots.add_metric(["taken"], self._num_taken)
        snapshots.add_metric(["failed"], self._num_failed)
        snapshot = HistogramMetricFamily(
            "blockyard_journal_snapshot_duration_seconds",
            "How long a snapshot took, in a process of its own beside the server.",
        )
        add_histogram(snapshot, self._snapshot_s)
        yield from (append, commands, num_bytes, snapshots, snapshot)
