"""Renewing a lease in the background: a thread beside the synchronous client, a task beside the other.

Neither keeps its lease alive in memory: a lease that nobody refers to any more ends its renewal, and expires
at the server. A forked child has no such thread: take a new lease there.
"""

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from blockyard.client.lease_state import LeaseState
from blockyard.core.errors import BlockyardError


class Renewable(Protocol):
    """A lease whose owner waits."""

    def renew_once(self) -> None:
        """One try.

        Raises:
            BlockyardError: It failed; the lease's state says whether it is lost.
        """
        ...


class AsyncRenewable(Protocol):
    """A lease whose owner awaits."""

    async def renew_once(self) -> None:
        """As `Renewable.renew_once`."""
        ...


class ThreadRenewal:
    """Renews ``lease`` from a daemon thread until it is stopped, lost or forgotten."""

    def __init__(self, lease: Renewable, state: LeaseState) -> None:
        self._stopped = threading.Event()
        weakref.finalize(lease, self._stopped.set).atexit = False
        self._thread = threading.Thread(
            target=_renew_until,
            args=(weakref.ref(lease), state, self._stopped),
            name=f"renew {state.lease_id}",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for a moment for a renewal under way."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)


def _renew_until(
    lease_of: Callable[[], Renewable | None], state: LeaseState, stopped: threading.Event
) -> None:
    pause_s = state.renewal_in_s(time.monotonic())
    while not stopped.wait(pause_s) and not state.has_ended:
        pause_s = state.renewal_in_s(time.monotonic())
        if pause_s > 0:
            continue  # another call has renewed it
        lease = lease_of()
        if lease is None:
            return
        try:
            lease.renew_once()
            pause_s = state.renewal_in_s(time.monotonic())
        except BlockyardError:
            pause_s = state.pause_after_failure_s
        del lease  # not to be kept alive through the pause


class TaskRenewal:
    """Renews ``lease`` from a task of the running loop until it is stopped, lost or forgotten."""

    def __init__(self, lease: AsyncRenewable, state: LeaseState) -> None:
        self._task = asyncio.get_running_loop().create_task(
            _renew_until_async(weakref.ref(lease), state), name=f"renew {state.lease_id}"
        )
        weakref.finalize(lease, _cancel, self._task).atexit = False

    def stop(self) -> None:
        """Cancel the task."""
        _cancel(self._task)


def _cancel(task: "asyncio.Task[None]") -> None:
    loop = task.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)  # the collector may run in any thread


async def _renew_until_async(lease_of: Callable[[], AsyncRenewable | None], state: LeaseState) -> None:
    pause_s = state.renewal_in_s(time.monotonic())
    while not state.has_ended:
        await asyncio.sleep(pause_s)
        pause_s = state.renewal_in_s(time.monotonic())
        if pause_s > 0:
            continue
        lease = lease_of()
        if lease is None:
            return
        try:
            await lease.renew_once()
            pause_s = state.renewal_in_s(time.monotonic())
        except BlockyardError:
            pause_s = state.pause_after_failure_s
        del lease
