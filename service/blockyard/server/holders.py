"""Who holds the most blocks of a pool, counted as seldom as it is dear."""

import heapq
import time
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from blockyard.core.audit import Holder
from blockyard.core.holdings import count_holdings
from blockyard.core.pool import Pool
from blockyard.server.slices import Slices

MAX_HOLDERS = 20
"""Leases that are told of."""

MAX_SHARE = 0.02
"""Of the time, that counting one pool may take."""


@dataclass(frozen=True, slots=True)
class _Count:
    """``due_s``: when it may be made anew, by `time.monotonic`."""

    top: list[Holder]
    due_s: float


class Holders:
    """The top holders of every pool that somebody watches; one count serves all who do."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._counts: WeakKeyDictionary[Pool, _Count] = WeakKeyDictionary()

    async def top(self, pool: Pool) -> list[Holder]:
        """The leases of ``pool`` that hold the most blocks, `MAX_HOLDERS` at most, the largest first.

        As of a moment ago: counting again waits until it takes `MAX_SHARE` of the time at most.
        """
        known = self._counts.get(pool)
        if known is not None and time.monotonic() < known.due_s:
            return known.top
        holdings, cost_s = await self._slices.run(count_holdings(pool))
        top = heapq.nlargest(MAX_HOLDERS, holdings, key=lambda holding: holding.num_blocks)
        self._counts[pool] = _Count(top, time.monotonic() + cost_s / MAX_SHARE)
        return top
