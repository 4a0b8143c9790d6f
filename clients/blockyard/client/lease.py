"""Leases: under which a scheduler holds blocks, renewed in the background while they are in use."""

import time
from types import TracebackType
from typing import Self, TypeVar

from blockyard.client.call import Call
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.lease_state import LeaseState
from blockyard.client.methods import awaitable, blocking
from blockyard.client.renewal import TaskRenewal, ThreadRenewal
from blockyard.client.retry import NO_RETRY, RetryPolicy
from blockyard.client.sender import AsyncSender, Sender
from blockyard.core.errors import BlockyardError, LeaseExpired
from blockyard.core.replies import LeaseReleased

T = TypeVar("T")


class _LeaseFacts:
    """What both kinds of lease tell without a round trip."""

    _calls: LeaseCalls
    _state: LeaseState

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
    def lost(self) -> bool:
        """Whether it is known to have expired, or was released. Its calls then raise `LeaseExpired`."""
        return self._state.has_ended

    def next_step_id(self) -> int:
        """Draw the number of a step, for a caller that must be able to send the same step again."""
        return self._calls.next_step_id()


class Lease(_LeaseFacts):
    """A lease, from `Pool.lease`. Leaving its ``with`` block releases it. Thread-safe.

    Each call renews it; so does a thread, if there are none. Once the server has said that it expired, calls
    raise `LeaseExpired` without asking again. Belongs to the process that took it.
    """

    def __init__(self, sender: Sender, calls: LeaseCalls, state: LeaseState, *, renew: bool) -> None:
        self._sender = sender
        self._calls = calls
        self._state = state
        self._renewal = ThreadRenewal(self, state) if renew else None
        if self._renewal is not None:
            sender.background.add(self._renewal)

    allocate = blocking(LeaseCalls.allocate)
    commit = blocking(LeaseCalls.commit)
    free = blocking(LeaseCalls.free)
    step = blocking(LeaseCalls.step)
    allocate_blocks = blocking(LeaseCalls.allocate_blocks)
    free_blocks = blocking(LeaseCalls.free_blocks)
    renew = blocking(LeaseCalls.renew)

    def release(self) -> LeaseReleased:
        """End the lease; all it holds becomes free. Nothing happens if it has ended."""
        if self._renewal is not None:
            self._renewal.stop()
        try:
            released = self._send(self._calls.release())
        except LeaseExpired:
            return self._calls.nothing_released()
        self._state.ended()
        return released

    def renew_once(self) -> None:
        """Renew with a single try. Raises as `renew`."""
        self._send(self._calls.renew(), NO_RETRY)

    def _send(self, call: Call[T], policy: RetryPolicy | None = None) -> T:
        self._state.check()
        sent_s = time.monotonic()
        try:
            value = self._sender.send(call, policy)
        except LeaseExpired as error:
            self._state.ended(error)
            raise
        self._state.renewed(sent_s)
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except BlockyardError:
            if error is None:  # else the block's own error matters more, and the lease expires anyway
                raise


class AsyncLease(_LeaseFacts):
    """A lease, from `AsyncPool.lease`. As `Lease`; a task renews it."""

    def __init__(self, sender: AsyncSender, calls: LeaseCalls, state: LeaseState, *, renew: bool) -> None:
        self._sender = sender
        self._calls = calls
        self._state = state
        self._renewal = TaskRenewal(self, state) if renew else None
        if self._renewal is not None:
            sender.background.add(self._renewal)

    allocate = awaitable(LeaseCalls.allocate)
    commit = awaitable(LeaseCalls.commit)
    free = awaitable(LeaseCalls.free)
    step = awaitable(LeaseCalls.step)
    allocate_blocks = awaitable(LeaseCalls.allocate_blocks)
    free_blocks = awaitable(LeaseCalls.free_blocks)
    renew = awaitable(LeaseCalls.renew)

    async def release(self) -> LeaseReleased:
        """End the lease; all it holds becomes free. Nothing happens if it has ended."""
        if self._renewal is not None:
            self._renewal.stop()
        try:
            released = await self._send(self._calls.release())
        except LeaseExpired:
            return self._calls.nothing_released()
        self._state.ended()
        return released

    async def renew_once(self) -> None:
        """Renew with a single try. Raises as `renew`."""
        await self._send(self._calls.renew(), NO_RETRY)

    async def _send(self, call: Call[T], policy: RetryPolicy | None = None) -> T:
        self._state.check()
        sent_s = time.monotonic()
        try:
            value = await self._sender.send(call, policy)
        except LeaseExpired as error:
            self._state.ended(error)
            raise
        self._state.renewed(sent_s)
        return value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except BlockyardError:
            if error is None:
                raise
