"""Renewing a lease in the background: a thread beside the synchronous client, a task beside the other.

Neither keeps its lease alive in memory: a lease that nobody refers to any more ends its renewal, and expires
at the server. A forked child has no such thread: take a new lease there.

Nothing but the lease's end ends a renewal. What is not a refusal is logged as a warning under
``blockyard.client``, and so is the end of a lease that was not released.
"""

import asyncio
import contextvars
import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from blockyard.client.delivery import Pause
from blockyard.client.lease_state import LeaseState
from blockyard.core.errors import BlockyardError

_log = logging.getLogger("blockyard.client")


class Renewable(Protocol):
    """A lease whose owner waits."""

    def renew_once(self, timeout_s: float) -> None:
        """One try, which takes at most ``timeout_s``. Raises if it failed."""
        ...


class AsyncRenewable(Protocol):
    """A lease whose owner awaits."""

    async def renew_once(self, timeout_s: float) -> None:
        """As `Renewable.renew_once`."""
        ...


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the lease with one try of at most so many seconds, then go on."""

    timeout_s: float


Renewing: TypeAlias = Generator[Pause | Renew, Exception | None, None]


def renew_in_time(state: LeaseState, now_s: Callable[[], float]) -> Renewing:
    """Says when to renew a lease, until it has ended.

    Args:
        state: The lease's, which whoever renews it keeps up to date.
        now_s: Tells the time, on the clock of ``state``.

    Yields:
        A pause to make, answered with None; or a renewal, answered with what it raised, if anything.
    """
    pause_s = state.renewal_in_s(now_s())
    while True:
        yield Pause(pause_s)
        if state.has_ended(now_s()):
            break
        pause_s = state.renewal_in_s(now_s())
        if pause_s > 0:
            continue  # another call has renewed it
        started_s = now_s()
        error = yield Renew(state.renewal_timeout_s)
        if error is None:
            pause_s = state.renewal_in_s(now_s())
            continue
        if not isinstance(error, BlockyardError):
            _log.warning("renewing lease %s failed, and is tried again: %r", state.lease_id, error)
        del error  # its traceback holds the lease, which is not to be kept alive through the pause
        pause_s = max(0.0, started_s + state.pause_after_failure_s - now_s())
    if not state.is_released:
        _log.warning(
            "lease %s has ended: it expired, was not renewed in time, its epoch is over, or its pool is gone",
            state.lease_id,
        )


class ThreadRenewal:
    """Renews ``lease`` from a daemon thread, once started, until the lease has ended or is forgotten."""

    def __init__(self, lease: Renewable, state: LeaseState) -> None:
        self._stopped = threading.Event()
        weakref.finalize(lease, self._stopped.set).atexit = False
        self._thread = threading.Thread(
            target=_renew,
            args=(weakref.ref(lease), renew_in_time(state, time.monotonic), self._stopped),
            name=f"renew {state.lease_id}",
            daemon=True,
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def signal(self) -> None:
        """Ask the thread to end."""
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, at most so long: a renewal may be under way."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)


def _renew(lease_of: Callable[[], Renewable | None], renewing: Renewing, stopped: threading.Event) -> None:
    outcome: Exception | None = None
    while True:
        try:
            action = renewing.send(outcome)
        except StopIteration:
            return
        outcome = None
        if isinstance(action, Pause):
            if stopped.wait(action.seconds):
                return
        elif (lease := lease_of()) is None:
            return
        else:
            try:
                lease.renew_once(action.timeout_s)
            except Exception as error:  # noqa: BLE001 - told to the generator, which goes on
                outcome = error
            del lease  # not to be kept alive through the pause


class TaskRenewal:
    """Renews ``lease`` from a task, once started, until the lease has ended or is forgotten."""

    def __init__(self, lease: AsyncRenewable, state: LeaseState) -> None:
        self._lease_of = weakref.ref(lease)
        self._state = state
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        renewing = renew_in_time(self._state, time.monotonic)
        self._task = asyncio.get_running_loop().create_task(
            _renew_async(self._lease_of, renewing),
            name=f"renew {self._state.lease_id}",
            context=contextvars.Context(),  # as in a thread: not part of whichever trace took the lease
        )
        lease = self._lease_of()
        assert lease is not None, "its lease starts it"
        weakref.finalize(lease, _cancel, self._task).atexit = False

    async def stop(self) -> None:
        """Cancel the task and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _cancel(task: "asyncio.Task[None]") -> None:
    loop = task.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)  # the collector may run in any thread


async def _renew_async(lease_of: Callable[[], AsyncRenewable | None], renewing: Renewing) -> None:
    outcome: Exception | None = None
    while True:
        try:
            action = renewing.send(outcome)
        except StopIteration:
            return
        outcome = None
        if isinstance(action, Pause):
            await asyncio.sleep(action.seconds)
        elif (lease := lease_of()) is None:
            return
        else:
            try:
                await lease.renew_once(action.timeout_s)
            except Exception as error:  # noqa: BLE001 - told to the generator, which goes on
                outcome = error
            del lease
