"""From the pools to those who follow: what a pool has done is published once it is durable, not before."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from blockyard.server.pool_journal import Commit

if TYPE_CHECKING:  # the base install of a server has no ZeroMQ
    from blockyard.server.events.sockets import EventSockets

log = structlog.get_logger("blockyard.events")

PACE_S = 0.005
"""Between two rounds of publishing: what comes in the meantime goes out together."""
DELAY_BOUNDS_S = (5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


@dataclass(frozen=True, slots=True)
class _Done:
    """What a pool has done: ``batches`` of its stream, to be published once ``settling`` is done.

    ``commit`` says whether they may be told then; they were added at ``added_s``.
    """

    stream: PoolStream
    batches: list[Batch]
    is_last: bool
    commit: Commit
    settling: asyncio.Future[None] | None
    added_s: float


class EventHub(Collector):
    """No streams at first.

    Args:
        commit: The commit of the pool of a name.
        sockets: Where batches go besides; None for nowhere.
        address: This server's, for topics: host and port.
    """

    def __init__(self, commit: Callable[[str], Commit], sockets: "EventSockets | None", address: str) -> None:
        self._commit = commit
        self._sockets = sockets
        self._address = address
        self._streams: dict[str, PoolStream] = {}
        self._waiting: list[_Done] = []
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
            self._add(name, stream, batches, is_last=False)

    def drop(self, name: str) -> None:
        """The pool of this name is gone."""
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._add(name, stream, [stream.ending()], is_last=True)

    def _add(self, name: str, stream: PoolStream, batches: list[Batch], *, is_last: bool) -> None:
        commit = self._commit(name)
        done = _Done(stream, batches, is_last, commit, commit.settling, time.perf_counter())
        self._waiting.append(done)
        if done.settling is None:
            self._something.set()
        else:
            done.settling.add_done_callback(lambda _: self._something.set())

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            await self._something.wait()
            self._something.clear()
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                if done.settling is None or done.settling.done():
                    self._publish(done)
                else:
                    self._waiting.append(done)
            await asyncio.sleep(PACE_S)

    def _publish(self, done: "_Done") -> None:
        """Tell of something that is durable; nobody is told of what will never be."""
        with contextlib.suppress(NotReady):
            done.commit.check_sound()
            done.stream.publish(done.batches)
            if self._sockets is not None:
                self._send(self._sockets, done.stream, done.batches)
            self._delays.observe(time.perf_counter() - done.added_s)
        if done.is_last:
            done.stream.close()

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
