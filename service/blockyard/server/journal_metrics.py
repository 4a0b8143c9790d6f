"""How far the journal's snapshots are behind, and how large its files are: read at a scrape."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blockyard.server.pools import Pools


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigures:
    """A pool's line in the journal at one moment.

    Attributes:
        pool: Its pool's name.
        snapshot_age_s: Since its last snapshot; before the first, since the server has this pool.
        num_new_commands: Commands since the last snapshot.
    """

    pool: str
    snapshot_age_s: float
    num_new_commands: int


class JournalCollector(Collector):
    """The metrics of a journal whose figures have been read.

    Args:
        lines: Of its pools.
        num_bytes: Sizes of its files by what they are.
    """

    def __init__(self, lines: list[LineFigures], num_bytes: dict[str, int]) -> None:
        self._lines = lines
        self._num_bytes = num_bytes

    @classmethod
    def read(cls, pools: Pools, num_bytes: dict[str, int]) -> Self:
        """As it is now."""
        now_s = time.monotonic()
        lines = [
            LineFigures(
                pool=name, snapshot_age_s=now_s - line.snapshot_s, num_new_commands=line.num_new_commands
            )
            for name, line in pools.lines_by_name().items()
        ]
        return cls(lines, num_bytes)

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time, as for `PoolsCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family after the other, each over all pools."""
        age = GaugeMetricFamily(
            "blockyard_pool_snapshot_age_seconds",
            "Since the pool's last snapshot; before the first, since the server has this pool.",
            labels=["pool"],
        )
        commands = GaugeMetricFamily(
            "blockyard_pool_commands_since_snapshot",
            "Commands that a restart has to replay for the pool.",
            labels=["pool"],
        )
        for line in self._lines:
            age.add_metric([line.pool], line.snapshot_age_s)
            commands.add_metric([line.pool], line.num_new_commands)
        size = GaugeMetricFamily(
            "blockyard_journal_size_bytes",
            "Size of the journal's files: its database, and its log of what was written last.",
            labels=["file"],
        )
        for name, num_bytes in self._num_bytes.items():
            size.add_metric([name], num_bytes)
        yield from (age, commands, size)
