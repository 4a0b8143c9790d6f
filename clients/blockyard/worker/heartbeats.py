"""Keeping a worker's place in its pool from a thread, for as long as the worker lives.

A server that cannot be reached, or whose pool is gone for now, is called again and again: a pool may be made
anew under its name. A server that does not know the worker (it was restarted, and the pool made anew) is told
of it once more. Three things end it: the worker itself, another one in its place, and a pool made anew in
which it has no place. A failure is logged when it begins, and when it becomes another one.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from blockyard.core.errors import WorkerReplaced

_log = logging.getLogger("blockyard.worker")


class Beating(Protocol):
    """A worker that can call once."""

    @property
    def heartbeat_interval_s(self) -> float:
        """From the beginning of one call to that of the next."""
        ...

    def beat(self) -> None:
        """Call once. Raises if it failed; WorkerReplaced ends the calls."""
        ...


class Heartbeats:
    """Calls for ``worker`` at its interval from a daemon thread, once started; the first after an interval.

    The thread does not keep the worker alive: a worker that nobody refers to any more is soon lost.
    """

    def __init__(self, worker: Beating) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=_beat,
            args=(weakref.ref(worker), worker.heartbeat_interval_s, self._stopped),
            name="blockyard heartbeats",
            daemon=True,
        )
        weakref.finalize(worker, self._signal).atexit = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End, and wait for a call under way, at most so long."""
        self._signal()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _signal(self) -> None:
        # A forked child has no such thread, and an event whose lock may be held for ever.
        if self._thread.is_alive():
            self._stopped.set()


def _beat(worker_of: Callable[[], Beating | None], pause_s: float, stopped: threading.Event) -> None:
    failure: type[Exception] | None = None
    while not stopped.wait(pause_s):
        began_s = time.monotonic()
        worker = worker_of()
        if worker is None:
            return
        try:
            worker.beat()
        except WorkerReplaced as error:
            if not stopped.is_set():
                _log.error("this worker has ended: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the next call may succeed
            if type(error) is not failure:
                _log.warning("a heartbeat failed, and is tried again: %r", error)
            failure = type(error)
        else:
            failure = None
        # A call that took long is not to delay the next.
        pause_s = max(0.0, began_s + worker.heartbeat_interval_s - time.monotonic())
        del worker  # not to be kept alive through the pause
