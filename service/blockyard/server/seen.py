"""What a watcher saw in one look, as values that say whether the next look is any different.

Times of leases and workers are kept as the pool has them, so that passing time alone is no difference; a
message tells them as durations.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.audit import Holder
from blockyard.core.pool import Pool
from blockyard.core.statistics import Statistics
from blockyard.core.workers import Worker
from blockyard.server.latency import CallLatency
from blockyard.server.seen_pins import SeenPin, see_pins
from blockyard.server.seen_tenants import SeenTenants
from blockyard.server.watch_messages import ChosenPool, Figures, WatchedLease, WatchedPool
from blockyard.server.worker_routes import WorkerReply

MAX_WORKERS = 64
"""Workers that are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPool:
    """The chosen pool.

    Attributes:
        name: Its own.
        stats: Its figures.
        leases: Each with the time at which it runs out.
        pins: Those that are told of.
        tenants: Where any has a name.
        workers: Each with whether it is lost; lost ones first.
    """

    name: str
    stats: Statistics
    leases: list[tuple[Holder, int]]
    pins: list[SeenPin]
    tenants: SeenTenants
    workers: list[tuple[Worker, bool]]

    @classmethod
    def of(
        cls, name: str, pool: Pool, holders: Sequence[Holder], tenants: SeenTenants, now_ms: int
    ) -> "SeenPool":
        """``pool``, known by ``name``, at ``now_ms``, with those of ``holders`` whose leases still stand."""
        leases = [(each, pool.leases.get(each.lease_id)) for each in holders]
        workers = [(worker, pool.workers.is_lost(worker, now_ms)) for worker in pool.workers]
        workers.sort(key=lambda each: not each[1])
        return cls(
            name=name,
            stats=pool.statistics(now_ms),
            pins=see_pins(pool),
            tenants=tenants,
            leases=[(holding, lease.expires_at_ms) for holding, lease in leases if lease is not None],
            workers=[(dataclasses.replace(worker), is_lost) for worker, is_lost in workers[:MAX_WORKERS]],
        )

    def message(self, now_ms: int) -> ChosenPool:
        """It as it is told at ``now_ms``."""
        return ChosenPool(
            pool=self.name,
            stats=self.stats,
            leases=[
                WatchedLease(
                    lease_id=holding.lease_id,
                    tenant=holding.tenant,
                    holder=holding.holder,
                    num_sequences=holding.num_sequences,
                    num_blocks=holding.num_blocks,
                    expires_in_ms=max(0, expires_at_ms - now_ms),
                )
                for holding, expires_at_ms in self.leases
            ],
            pins=[pin.message(now_ms) for pin in self.pins],
            num_tenants=self.tenants.num_named,
            tenants=self.tenants.told,
            workers=[WorkerReply.of(worker, now_ms, is_lost=is_lost) for worker, is_lost in self.workers],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that was asked for.

    Attributes:
        num_pools: All that the server owns.
        num_matching: Those whose name matches.
        pools: Those shown, by name.
        chosen: The one of which all is shown; None where none was chosen, or it is not there.
        latency: Of hot calls.
    """

    num_pools: int
    num_matching: int
    pools: list[tuple[str, Statistics]]
    chosen: SeenPool | None
    latency: list[CallLatency]

    def figures(self, now_ms: int) -> Figures:
        """It as it is told at ``now_ms``."""
        return Figures(
            num_pools=self.num_pools,
            num_matching=self.num_matching,
            pools=[WatchedPool(pool=name, stats=stats) for name, stats in self.pools],
            chosen=None if self.chosen is None else self.chosen.message(now_ms),
            latency=self.latency,
        )
