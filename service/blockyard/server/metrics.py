"""`GET /metrics`: what the pools' statistics say, in the forms that Prometheus reads.

A scrape has what the application counts in its registry, and what is read anew each time: statistics of the
pools and sizes of the journal. Pools are read on the event loop, a slice at a time, so that each is seen at
one moment and no call waits for long; the text is made in a thread.
"""

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.registry import Collector

from blockyard.core.compiled import is_compiled
from blockyard.core.histogram import Histogram
from blockyard.core.residency import SAMPLE_EVERY
from blockyard.core.statistics import WINDOW_REQUESTS, Statistics
from blockyard.server.access.principal import ALL_POOLS, Principal
from blockyard.server.access.protection import Asking
from blockyard.server.access.reached_pools import ReachedPools
from blockyard.server.clock import Clock
from blockyard.server.histogram import add_histogram
from blockyard.server.journal_metrics import JournalCollector
from blockyard.server.pools import Pools
from blockyard.server.tenant_metrics import read_tenants, tenant_metrics
from blockyard.server.tenant_routes import TenantReply

POOLS_A_SLICE = 50
"""Pools read in one turn of the event loop: well under a millisecond."""

TENANTS_A_POOL = 8
"""Tenants that take as long to read as a pool by itself."""

COUNTER_HELP = {
    "num_admitted_sequences": "Sequences that got their first blocks.",
    "num_freed_sequences": "Sequences that were freed, by their holder or with their lease.",
    "num_refused_allocations": "Allocations refused for want of free blocks.",
    "num_queried_tokens": "Tokens of admitted prompts that were looked up in the prefix cache.",
    "num_hit_tokens": "Tokens of admitted prompts that were found in the prefix cache.",
    "num_granted_tokens": "Tokens that blocks were given for, beyond the cached ones.",
    "num_published_blocks": "Blocks that became prefix-cache hits for others.",
    "num_evicted_blocks": "Cached blocks whose content was given up for new content.",
    "num_created_leases": "Leases opened.",
    "num_expired_leases": "Leases that ran out.",
    "num_steps": "Scheduler steps done.",
    "num_prefix_cache_resets": "Times that the prefix cache was emptied.",
    "num_forked_sequences": "Sequences that began with another one's blocks; they count as admitted as well.",
    "num_event_batches": "Batches of events, one for each command that changed the prefix index.",
}
"""Every counter of `Statistics.counters`, by its name there."""

RESIDENCY_HELP = {
    "lifetime_s": "From when a block's content was published until it was given up for new content.",
    "idle_before_evict_s": "From when nobody held a block any more until its content was given up for new.",
    "reuse_gap_s": "From when nobody held a block any more until a hit held it again.",
}
"""Every histogram of `Residency`, by its name there."""

OF_A_SAMPLE = f"Counted for a sample: every {SAMPLE_EVERY}th of the pool's device blocks, from block 1 on."

VERSION = version("blockyard")
"""Read once: looking it up leaves garbage in cycles."""


class PoolFigures(NamedTuple):
    """A pool at one moment.

    Attributes:
        name: The pool's.
        statistics: See `Statistics`.
        residency: Copies of the histograms of `Residency`, by their names there.
        tenants: Those that it has heard of.
    """

    name: str
    statistics: Statistics
    residency: dict[str, Histogram]
    tenants: list[TenantReply]


def metrics_route(
    registry: CollectorRegistry,
    pools: Pools,
    clock: Clock,
    journal_bytes: Callable[[], dict[str, int]] | None,
    cluster: Callable[[], Collector] | None,
) -> APIRouter:
    """The route ``/metrics``.

    Args:
        registry: What the application counts.
        pools: What is read at each scrape, by the time of ``clock``.
        clock: Likewise.
        journal_bytes: Sizes of the files that the pools are written to; None: they are written nowhere.
        cluster: Tells of the cluster as it is now; None: there is none.
    """
    router = APIRouter()

    @router.get(
        "/metrics",
        tags=["watching"],
        summary="All pools' figures for Prometheus.",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
    )
    async def metrics(request: Request, principal: Asking) -> Response:
        collectors: list[Collector] = [registry, PoolsCollector(await _read(pools, clock, principal))]
        if journal_bytes is not None:
            collectors.append(JournalCollector.read(pools, journal_bytes()))
        if cluster is not None:
            collectors.append(cluster())
        if principal.pools != ALL_POOLS:
            collectors = [ReachedPools(each, principal) for each in collectors]
        accept = request.headers.get("accept", "")
        text, content_type = await asyncio.to_thread(_render, collectors, accept)
        return Response(text, headers={"content-type": content_type})

    return router


async def _read(pools: Pools, clock: Clock, principal: Principal) -> list[PoolFigures]:
    """The figures of every pool that ``principal`` may know of.

    One that is deleted, or made, meanwhile is not among them.
    """
    figures = []
    num_read = 0.0
    for name, pool in [(name, pool) for name, pool in pools if principal.reaches(name)]:
        if pools.find(name) is not pool:
            continue
        statistics = pool.statistics(clock.now_ms())
        tenants = read_tenants(pools, name, pool)
        figures.append(PoolFigures(name, statistics, pool.residency.histograms(), tenants))
        num_read += 1 + len(tenants) / TENANTS_A_POOL
        if num_read >= POOLS_A_SLICE:
            num_read = 0
            await asyncio.sleep(0)
    return figures


def _render(collectors: Iterable[Collector], accept: str) -> tuple[bytes, str]:
    """The scrape in the form that ``accept`` asks for, and its content type."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # raised for a version that is no number
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return encode(registry), content_type


class PoolsCollector(Collector):
    """The metrics of pools whose figures have been read.

    Args:
        pools: Their figures.
    """

    def __init__(self, pools: list[PoolFigures]) -> None:
        self._pools = pools

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time: a registry that asks for them would collect everything twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family after the other, each over all pools."""
        yield InfoMetricFamily(
            "blockyard_build",
            "This server's version.",
            value={
                "version": VERSION,
                "python_version": platform.python_version(),
                "core": "compiled" if is_compiled() else "pure",
            },
        )
        yield GaugeMetricFamily(
            "blockyard_pools",
            "Pools that this server owns, of those that the scraper may know of.",
            len(self._pools),
        )
        yield self._blocks()
        yield self._host_blocks()
        yield self._pinned_blocks()
        yield self._workers()
        yield from self._gauges()
        yield from self._counters()
        yield from self._residency()
        yield from tenant_metrics((pool.name, pool.tenants) for pool in self._pools)

    def _blocks(self) -> Metric:
        blocks = GaugeMetricFamily(
            "blockyard_pool_blocks",
            "Blocks by state; the states of a pool add up to all its blocks.",
            labels=["pool", "state"],
        )
        for name, figures, *_ in self._pools:
            num_null = figures.num_blocks - figures.num_free_blocks - figures.num_held_blocks
            blocks.add_metric([name, "free"], figures.num_free_blocks)
            blocks.add_metric([name, "held"], figures.num_held_blocks)
            blocks.add_metric([name, "null"], num_null)
        return blocks

    def _host_blocks(self) -> Metric:
        blocks = GaugeMetricFamily(
            "blockyard_pool_host_blocks",
            "Blocks in host memory by state, adding up likewise; absent for a pool that has none.",
            labels=["pool", "state"],
        )
        for name, figures, *_ in self._pools:
            if figures.num_host_blocks is not None and figures.num_free_host_blocks is not None:
                blocks.add_metric([name, "free"], figures.num_free_host_blocks)
                blocks.add_metric([name, "held"], figures.num_host_blocks - figures.num_free_host_blocks - 1)
                blocks.add_metric([name, "null"], 1)
        return blocks

    def _pinned_blocks(self) -> Metric:
        blocks = GaugeMetricFamily(
            "blockyard_pool_pinned_blocks",
            "Blocks that pins keep, by kind: soft ones have cached blocks evicted last, hard ones hold them.",
            labels=["pool", "kind"],
        )
        for name, figures, *_ in self._pools:
            blocks.add_metric([name, "soft"], figures.num_soft_pinned_blocks)
            blocks.add_metric([name, "hard"], figures.num_hard_pinned_blocks)
        return blocks

    def _workers(self) -> Metric:
        workers = GaugeMetricFamily(
            "blockyard_pool_workers",
            "Registered workers by state: those that call, and those that have been silent for too long.",
            labels=["pool", "state"],
        )
        for name, figures, *_ in self._pools:
            workers.add_metric([name, "alive"], figures.num_workers - figures.num_lost_workers)
            workers.add_metric([name, "lost"], figures.num_lost_workers)
        return workers

    def _gauges(self) -> Iterator[Metric]:
        cached = _gauge("cached_blocks", "Blocks with content for the prefix cache, held or free.")
        usage = _gauge("usage_ratio", "Share of the blocks that are held, 0 to 1.")
        sequences = _gauge("sequences", "Live sequences.")
        leases = _gauge("leases", "Live leases.")
        pins = _gauge("pins", "Live pins.")
        epoch = _gauge("epoch", "Rises when the pool's cached blocks are lost with a worker's memory.")
        hit_ratio = _gauge(
            "prefix_hit_ratio",
            f"Share of looked-up tokens that were found, 0 to 1, over the last {WINDOW_REQUESTS} requests; "
            "absent while there were none.",
        )
        weight = _gauge(
            "eviction_weight",
            "What use counts for against recency where eviction is adaptive, as the pool has found it; 0 is "
            "least recently used. Absent for a pool that always evicts by that.",
        )
        for name, figures, *_ in self._pools:
            label = [name]
            cached.add_metric(label, figures.num_cached_blocks)
            usage.add_metric(label, figures.usage)
            sequences.add_metric(label, figures.num_sequences)
            leases.add_metric(label, figures.num_leases)
            pins.add_metric(label, figures.num_pins)
            epoch.add_metric(label, figures.epoch)
            if figures.hit_rate is not None:
                hit_ratio.add_metric(label, figures.hit_rate)
            if figures.eviction_weight is not None:
                weight.add_metric(label, figures.eviction_weight)
        yield from (cached, usage, sequences, leases, pins, epoch, hit_ratio, weight)

    def _counters(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily] = {}
        for name, figures, *_ in self._pools:
            for counter, value in figures.counters.items():
                family = families.get(counter)
                if family is None:
                    family = families[counter] = _counter(counter)
                family.add_metric([name], value)
        yield from families.values()

    def _residency(self) -> Iterator[Metric]:
        for histogram, text in RESIDENCY_HELP.items():
            noun = histogram.removesuffix("_s")
            family = HistogramMetricFamily(
                f"blockyard_pool_block_{noun}_seconds", f"{text} {OF_A_SAMPLE}", labels=["pool"]
            )
            for name, _, residency, _ in self._pools:
                add_histogram(family, residency[histogram], [name])
            yield family


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"blockyard_pool_{name}", text, labels=["pool"])


def _counter(counter: str) -> CounterMetricFamily:
    """``num_hit_tokens`` becomes ``blockyard_pool_hit_tokens_total``."""
    noun = counter.removeprefix("num_")
    return CounterMetricFamily(f"blockyard_pool_{noun}", COUNTER_HELP[counter], labels=["pool"])
