"""From the pools to those who follow: what a pool has done is published once it is durable, not before."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import structlog
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from blockyard.core.errors import NotReady
from blockyard.core.histogram import Histogram
from blockyard.core.kv_batch import Batch
from blockyard.core.pool import Pool
from blockyard.server.events.pool_stream import PoolStream
from blockyard.server.histogram import add_histogram

if TYPE_CHECKING:  # the base install of a server has no ZeroMQ
    from blockyard.server.events.sockets import EventSockets

log = structlog.get_logger("blockyard.events")

PACE_S = 0.005
"""Between two rounds of publishing: what comes in the meantime goes out together."""
DELAY_BOUNDS_S = (5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class EventHub(Collector):
    """No streams at first.

    Args:
        settled: Waits until all that was done is durable; raises NotReady where it will never be.
        sockets: Where batches go besides; None for nowhere.
        address: This server's, for topics: host and port.
    """

    def __init__(
        self, settled: Callable[[], Awaitable[None]], sockets: "EventSockets | None", address: str
    ) -> None:
        self._settled = settled
        self._sockets = sockets
        self._address = address
        self._streams: dict[str, PoolStream] = {}
        self._waiting: list[tuple[PoolStream, list[Batch], float, bool]] = []
        self._something = asyncio.Event()
        self._delays = Histogram(DELAY_BOUNDS_S)

    def get(self, name: str) -> PoolStream | None:
        """The stream of the pool of this name; None where it has none."""
        return self._streams.get(name)

    def open(self, name: str, pool: Pool) -> None:
        """Follow ``pool``, known by ``name``, from now on, if it has events."""
        if pool.events is not None:
            self._streams[name] = PoolStream(pool, topic=f"kv@{self._address}@{name}")

    def note(self, name: str) -> None:
        """The pool of this name was given a command."""
        stream = self._streams.get(name)
        if stream is not None and (batches := stream.take()):
            self._add(stream, batches, is_last=False)

    def drop(self, name: str) -> None:
        """The pool of this name is gone."""
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._add(stream, [stream.ending()], is_last=True)

    def _add(self, stream: PoolStream, batches: list[Batch], *, is_last: bool) -> None:
        self._waiting.append((stream, batches, time.perf_counter(), is_last))
        self._something.set()

    async def run(self) -> None:
        """Publish for ever, or until something will never be durable."""
        while True:
            await self._something.wait()
            self._something.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._settled()
            except NotReady:
                return
            for stream, batches, added_s, is_last in waiting:
                stream.publish(batches)
                if self._sockets is not None:
                    self._send(self._sockets, stream, batches)
                self._delays.observe(time.perf_counter() - added_s)
                if is_last:
                    stream.close()
            await asyncio.sleep(PACE_S)

    def _send(self, sockets: "EventSockets", stream: PoolStream, batches: list[Batch]) -> None:
        """Over ZeroMQ: what cannot be sent is a gap in one stream's numbers, and no more than that."""
        try:
            sockets.publish(stream, batches)
        except Exception:
            log.exception("events could not be sent", topic=stream.topic)

    async def answer(self) -> None:
        """Send missed batches again, for ever."""
        if self._sockets is not None:
            await self._sockets.answer(lambda: list(self._streams.values()))

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time, as for `PoolsCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See `Collector.collect`."""
        delays = HistogramMetricFamily(
            "blockyard_event_publish_delay_seconds",
            "From a command that changed a prefix index until its events were sent.",
        )
        add_histogram(delays, self._delays)
        followers = GaugeMetricFamily(
            "blockyard_pool_event_followers",
            "Subscribers to the pool's events as server-sent events.",
            labels=["pool"],
        )
        lag = GaugeMetricFamily(
            "blockyard_pool_event_lag_batches",
            "Batches of events that the slowest of these subscribers has yet to be sent.",
            labels=["pool"],
        )
        for name, stream in list(self._streams.items()):
            followers.add_metric([name], len(stream.followers))
            lag.add_metric([name], stream.lag)
        yield from (delays, followers, lag)
