"""What one watcher is told, and when: at once, and again when something has changed.

Looking takes little time: all watchers together look for `MAX_SHARE` of it at most, and less often where that
does not do. What is told is durable, as with every other answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from blockyard.core.audit import Holder
from blockyard.core.errors import NotReady
from blockyard.core.pool import Pool
from blockyard.server.access.principal import Principal
from blockyard.server.clock import Clock
from blockyard.server.holders import Holders
from blockyard.server.latency import LatencyWindow
from blockyard.server.pools import Pools
from blockyard.server.seen import Seen, SeenPool
from blockyard.server.seen_tenants import SeenTenants
from blockyard.server.sse import Streams, message

PACE_S = 0.25
"""Between two looks, at least."""

MAX_SHARE = 0.05
"""Of the time, that all watchers' looks may take."""

EVENT = "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a watcher wants to see.

    Attributes:
        part: Of a pool's name, in any case; empty for all pools.
        offset: How many of the matching pools to pass over.
        limit: How many to show.
        chosen: The pool to show all of, by its whole name; None for none.
        principal: Who wants to, and sees no pools but those that it may know of.
    """

    part: str
    offset: int
    limit: int
    chosen: str | None
    principal: Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """All that can be seen.

    Attributes:
        pools: The server's pools.
        clock: By whose time they are seen.
        holders: Who holds the most blocks of them.
        latency: Of the calls to them.
        settled: Waits until what was done is durable, see `Commit.settled`.
        streams: All that are open: among them the time for looking is shared.
    """

    pools: Pools
    clock: Clock
    holders: Holders
    latency: LatencyWindow
    settled: Callable[[], Awaitable[None]]
    streams: Streams


class WatchFeed:
    """The `Feed` of one watcher.

    Args:
        asked: What it wants to see.
        watched: What there is.
    """

    def __init__(self, asked: Asked, watched: Watched) -> None:
        self._asked = asked
        self._watched = watched
        self._told: Seen | None = None
        self._ready = b""
        self._due_s = 0.0
        self._is_over = False

    async def changed(self) -> None:
        """See `Feed.changed`; it is found out by looking."""
        while not (self._ready or self._is_over):
            await asyncio.sleep(max(0.0, self._due_s - time.monotonic()))
            await self._look()

    def read(self) -> bytes | None:
        """See `Feed.read`."""
        ready, self._ready = self._ready, b""
        return None if self._is_over else ready

    def close(self) -> None:
        """See `Feed.close`: nothing is kept for it elsewhere."""

    async def _look(self) -> None:
        """Make a message ready if there is anything new to be seen."""
        watched = self._watched
        chosen = self._chosen()
        holders = [] if chosen is None else await watched.holders.top(chosen[1])
        started_s = time.monotonic()
        now_ms = watched.clock.now_ms()
        seen = self._see(holders, now_ms)
        ready = b""
        if seen != self._told:
            ready = message(EVENT, seen.figures(now_ms).model_dump_json().encode())
        ended_s = time.monotonic()
        share_s = (ended_s - started_s) * watched.streams.num_open / MAX_SHARE
        self._due_s = ended_s + max(PACE_S, share_s)
        if ready:
            try:
                await watched.settled()
            except NotReady:  # the server is about to end, or may tell nobody anything for now
                self._is_over = True
                return
            self._told, self._ready = seen, ready

    def _see(self, holders: Sequence[Holder], now_ms: int) -> Seen:
        asked, watched = self._asked, self._watched
        part = asked.part.lower()
        known = [(name, pool) for name, pool in watched.pools if asked.principal.reaches(name)]
        matching = [(name, pool) for name, pool in known if part in name.lower()]
        shown = matching[asked.offset : asked.offset + asked.limit]
        chosen = self._chosen()  # again: another may have its name by now
        return Seen(
            num_pools=len(known),
            num_matching=len(matching),
            pools=[(name, pool.statistics(now_ms)) for name, pool in shown],
            chosen=None
            if chosen is None
            else SeenPool.of(*chosen, holders, SeenTenants.of(watched.pools, *chosen), now_ms),
            latency=[] if chosen is None else watched.latency.latest(),
        )

    def _chosen(self) -> tuple[str, Pool] | None:
        name = self._asked.chosen
        if name is None or not self._asked.principal.reaches(name):
            return None
        pool = self._watched.pools.find(name)
        return None if pool is None else (name, pool)
