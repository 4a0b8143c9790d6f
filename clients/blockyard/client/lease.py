"""Leases: under which a scheduler holds blocks, renewed in the background while they are in use."""

import itertools
import time
from types import TracebackType
from typing import Self, TypeVar

from blockyard.client.call import Call
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.lease_state import LeaseState
from blockyard.client.methods import awaitable, blocking
from blockyard.client.protocol import PoolCalls
from blockyard.client.renewal import TaskRenewal, ThreadRenewal
from blockyard.client.reports import PoolDescription
from blockyard.client.retry import NO_RETRY, RetryPolicy
from blockyard.client.sender import STOPPING_S, AsyncSender, Sender
from blockyard.core.errors import LeaseExpired, PoolNotFound, StaleEpoch
from blockyard.core.replies import LeaseReleased

T = TypeVar("T")

_ENDS = (LeaseExpired, PoolNotFound, StaleEpoch)
"""Refusals that tell that the lease has ended."""


class _LeaseBooks:
    """What both kinds of lease tell without a round trip."""

    def __init__(self, calls: LeaseCalls, state: LeaseState) -> None:
        self._calls = calls
        self._state = state
        self._step_ids = itertools.count(1)

    @property
    def lease_id(self) -> str:
        """The server's name for it."""
        return self._calls.lease_id

    @property
    def epoch(self) -> int:
        """The pool's epoch when the lease was made; every call carries it."""
        return self._calls.epoch

    @property
    def ttl_ms(self) -> int:
        """How long it stands without a renewal."""
        return round(self._state.ttl_s * 1000)

    @property
    def has_ended(self) -> bool:
        """Whether it was released, or is not known to stand any more; true for good, and without asking.

        It stands for its ttl from when the last call was sent that the server has answered. After that its
        blocks may be another's: write to them no more. Its calls then raise `LeaseExpired`, or `PoolNotFound`
        where the server has said that the pool is gone, or `StaleEpoch` where a worker has lost its memory:
        then `Lease.release` gives its blocks back.
        """
        return self._state.has_ended(time.monotonic())

    def next_step_id(self) -> int:
        """Draw the number of a step, for the one caller that sends steps under this lease, one at a time."""
        return next(self._step_ids)

    def __repr__(self) -> str:
        ended = ", ended" if self.has_ended else ""
        return f"<{type(self).__name__} {self.lease_id!r} of pool {self._calls.pool!r}{ended}>"


class Lease(_LeaseBooks):
    """A lease, from `Pool.lease`. Leaving its ``with`` block releases it. Thread-safe.

    Each call renews it; so does a thread, if there are none. Belongs to the process that took it.
    """

    def __init__(self, sender: Sender, calls: LeaseCalls, state: LeaseState, *, renew: bool) -> None:
        super().__init__(calls, state)
        self._sender = sender
        self._renewal = ThreadRenewal(self, state) if renew else None
        if self._renewal is not None:
            sender.add_user(self._renewal)
            self._renewal.start()

    allocate = blocking(LeaseCalls.allocate)
    commit = blocking(LeaseCalls.commit)
    fork = blocking(LeaseCalls.fork)
    free = blocking(LeaseCalls.free)
    step = blocking(LeaseCalls.step)
    allocate_blocks = blocking(LeaseCalls.allocate_blocks)
    free_blocks = blocking(LeaseCalls.free_blocks)
    renew = blocking(LeaseCalls.renew)

    def release(self) -> LeaseReleased:
        """End the lease; all it holds becomes free. Nothing happens if it has ended.

        Its renewal ends first: where this fails, the lease expires by itself.

        Raises:
            BlockyardError: The server was not reached, or refused.
        """
        if self._renewal is not None:
            self._renewal.signal()
            self._renewal.join(STOPPING_S)
        if self._state.holds_nothing:
            return self._calls.nothing_released()
        released = self._sender.send(self._calls.release())
        self._state.note_released()
        return released

    def describe_pool(self) -> PoolDescription:
        """As `Pool.describe`, of the lease's pool. Does not renew the lease."""
        try:
            return self._sender.send(PoolCalls(self._calls.pool).describe())
        except _ENDS as error:
            self._state.note_ended(error)
            raise

    def renew_once(self, timeout_s: float) -> None:
        """Renew with a single try of at most ``timeout_s``. Raises as `renew`."""
        self._send(self._calls.renew(), NO_RETRY, timeout_s)

    def _send(self, call: Call[T], policy: RetryPolicy | None = None, timeout_s: float | None = None) -> T:
        sent_s = time.monotonic()
        self._state.check(sent_s)
        try:
            value = self._sender.send(call, policy, timeout_s)
        except _ENDS as error:
            self._state.note_ended(error)
            raise
        self._state.note_renewed(sent_s, time.monotonic())
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except Exception:
            if error is None:  # else the block's own error matters more, and the lease expires anyway
                raise


class AsyncLease(_LeaseBooks):
    """A lease, from `AsyncPool.lease`. As `Lease`; a task renews it."""

    def __init__(self, sender: AsyncSender, calls: LeaseCalls, state: LeaseState, *, renew: bool) -> None:
        super().__init__(calls, state)
        self._sender = sender
        self._renewal = TaskRenewal(self, state) if renew else None
        if self._renewal is not None:
            sender.add_user(self._renewal)
            self._renewal.start()

    allocate = awaitable(LeaseCalls.allocate)
    commit = awaitable(LeaseCalls.commit)
    fork = awaitable(LeaseCalls.fork)
    free = awaitable(LeaseCalls.free)
    step = awaitable(LeaseCalls.step)
    allocate_blocks = awaitable(LeaseCalls.allocate_blocks)
    free_blocks = awaitable(LeaseCalls.free_blocks)
    renew = awaitable(LeaseCalls.renew)

    async def release(self) -> LeaseReleased:
        """As `Lease.release`."""
        if self._renewal is not None:
            await self._renewal.stop()
        if self._state.holds_nothing:
            return self._calls.nothing_released()
        released = await self._sender.send(self._calls.release())
        self._state.note_released()
        return released

    async def describe_pool(self) -> PoolDescription:
        """As `Lease.describe_pool`."""
        try:
            return await self._sender.send(PoolCalls(self._calls.pool).describe())
        except _ENDS as error:
            self._state.note_ended(error)
            raise

    async def renew_once(self, timeout_s: float) -> None:
        """As `Lease.renew_once`."""
        await self._send(self._calls.renew(), NO_RETRY, timeout_s)

    async def _send(
        self, call: Call[T], policy: RetryPolicy | None = None, timeout_s: float | None = None
    ) -> T:
        sent_s = time.monotonic()
        self._state.check(sent_s)
        try:
            value = await self._sender.send(call, policy, timeout_s)
        except _ENDS as error:
            self._state.note_ended(error)
            raise
        self._state.note_renewed(sent_s, time.monotonic())
        return value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except Exception:
            if error is None:
                raise
