"""Who is next of those that wait for blocks: first come, first served in a tenant, by weight across tenants.

Each tenant has a virtual time: what it was given from the line, in blocks over its weight. The tenant with
the least is next. One that begins to wait is no further back than the one that was served last, so that it
is owed nothing for the time in which it did not.

    weight 1  |----8----|----8----|             8 + 8 blocks given: at 16
    weight 2  |--8--|--8--|--8--|               8 + 8 + 8 given:    at 12, and next
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from blockyard.core.ids import TenantId

T = TypeVar("T")


class _Queue(Generic[T]):
    """Those of one tenant that wait, and its virtual time."""

    __slots__ = ("time", "waiting")

    def __init__(self, time: float) -> None:
        self.time = time
        self.waiting: deque[T] = deque()


class WaitingLine(Generic[T]):
    """Nobody waits at first."""

    def __init__(self) -> None:
        self._queues: dict[TenantId, _Queue[T]] = {}
        self._time = 0.0
        """The virtual time at which somebody was served last."""

    def __iter__(self) -> Iterator[T]:
        """All who wait, as of now."""
        return iter([waiter for queue in self._queues.values() for waiter in queue.waiting])

    def num_waiting(self, tenant: TenantId) -> int:
        """How many of the tenant's wait."""
        queue = self._queues.get(tenant)
        return 0 if queue is None else len(queue.waiting)

    def join(self, tenant: TenantId, waiter: T) -> None:
        """``waiter`` waits behind all others of its tenant."""
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = _Queue(self._time)
        queue.time = max(queue.time, self._time)
        queue.waiting.append(waiter)

    def leave(self, tenant: TenantId, waiter: T) -> None:
        """``waiter``, which waits, does so no more."""
        self._queues[tenant].waiting.remove(waiter)
        for name in [name for name, queue in self._queues.items() if self._is_forgettable(queue)]:
            del self._queues[name]

    def first_of_each(self) -> Iterator[T]:
        """The first of each tenant's, the one that is next at the front; the line may change meanwhile."""
        queues = sorted(self._queues.items(), key=lambda named: (named[1].time, named[0]))
        for _, queue in queues:
            if queue.waiting:
                yield queue.waiting[0]

    def served(self, tenant: TenantId, num_blocks: int, weight: int) -> None:
        """The first of the tenant's, still in line, was given ``num_blocks``; ``weight`` is from 1."""
        queue = self._queues[tenant]
        self._time = max(self._time, queue.time)
        queue.time += max(num_blocks, 1) / weight

    def _is_forgettable(self, queue: _Queue[T]) -> bool:
        """Whether a new one would be the same."""
        return not queue.waiting and queue.time <= self._time
