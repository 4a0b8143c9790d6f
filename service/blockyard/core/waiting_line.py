"""Who is next of those that wait for blocks: first come, first served in a tenant, by weight across tenants.

Within a tenant, those that run are before those that are to begin: they end, and give back what they hold.

Each tenant has a virtual time: what it was given from the line, in blocks over its weight. The tenant with
the least is next. One that begins to wait is no further back than the one that was served last, so that it
is owed nothing for the time in which it did not.

    weight 1  |----8----|----8----|             8 + 8 blocks given: at 16
    weight 2  |--8--|--8--|--8--|               8 + 8 + 8 given:    at 12, and next
"""

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

from blockyard.core.ids import TenantId

T = TypeVar("T")


class _Queue(Generic[T]):
    """Those of one tenant that wait, and its virtual time."""

    __slots__ = ("new", "running", "time")

    def __init__(self, time: float) -> None:
        self.time = time
        self.running: dict[T, None] = {}
        self.new: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self.running) + len(self.new)

    def __iter__(self) -> Iterator[T]:
        return chain(self.running, self.new)


class WaitingLine(Generic[T]):
    """Nobody waits at first."""

    def __init__(self) -> None:
        self._queues: dict[TenantId, _Queue[T]] = {}
        self._time = 0.0
        """The virtual time at which somebody was served last."""

    def __iter__(self) -> Iterator[T]:
        """All who wait, as of now."""
        return iter([waiter for queue in self._queues.values() for waiter in queue])

    def num_waiting(self, tenant: TenantId) -> int:
        """How many of the tenant's wait."""
        queue = self._queues.get(tenant)
        return 0 if queue is None else len(queue)

    def num_running(self, tenant: TenantId) -> int:
        """How many of these run."""
        queue = self._queues.get(tenant)
        return 0 if queue is None else len(queue.running)

    def join(self, tenant: TenantId, waiter: T, *, is_running: bool = False) -> None:
        """``waiter``, which can be a key of dictionaries, waits behind all others of its tenant and kind."""
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = _Queue(self._time)
        queue.time = max(queue.time, self._time)
        (queue.running if is_running else queue.new)[waiter] = None

    def leave(self, tenant: TenantId, waiter: T) -> None:
        """``waiter``, which waits, does so no more."""
        queue = self._queues[tenant]
        del (queue.running if waiter in queue.running else queue.new)[waiter]
        for name in [name for name, queue in self._queues.items() if self._is_forgettable(queue)]:
            del self._queues[name]

    def first_of_each(self) -> Iterator[T]:
        """The first of each tenant's, the one that is next at the front; the line may change meanwhile."""
        queues = sorted(self._queues.items(), key=lambda named: (named[1].time, named[0]))
        for _, queue in queues:
            if queue:
                yield next(iter(queue))

    def served(self, tenant: TenantId, num_blocks: int, weight: int) -> None:
        """The first of the tenant's, still in line, was given ``num_blocks``; ``weight`` is from 1."""
        queue = self._queues[tenant]
        self._time = max(self._time, queue.time)
        queue.time += max(num_blocks, 1) / weight

    def _is_forgettable(self, queue: _Queue[T]) -> bool:
        """Whether a new one would be the same."""
        return not queue and queue.time <= self._time
