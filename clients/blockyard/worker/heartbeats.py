"""Keeping a worker's place in its pool from a thread, for as long as the worker lives.

A server that cannot be reached, or whose pool is gone for now, is called again and again. A server that does
not know the worker (it was restarted, and the pool made anew) is told of it once more. Only two things end
it: the worker itself, and another one in its place.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from blockyard.core.errors import BlockyardError, WorkerReplaced

_log = logging.getLogger("blockyard.worker")


class Beating(Protocol):
    """A worker that can call once."""

    def beat(self) -> None:
        """Call once. Raises if it failed; WorkerReplaced ends the calls."""
        ...


class Heartbeats:
    """Calls for ``worker`` every ``interval_s`` from a daemon thread, once started.

    The thread does not keep the worker alive: a worker that nobody refers to any more is soon lost.
    """

    def __init__(self, worker: Beating, interval_s: float) -> None:
        self._stopped = threading.Event()
        weakref.finalize(worker, self._stopped.set).atexit = False
        self._thread = threading.Thread(
            target=_beat,
            args=(weakref.ref(worker), interval_s, self._stopped),
            name="blockyard heartbeats",
            daemon=True,
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End, and wait for a call under way, at most so long."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)


def _beat(worker_of: Callable[[], Beating | None], interval_s: float, stopped: threading.Event) -> None:
    is_heard = True
    while not stopped.wait(interval_s):
        worker = worker_of()
        if worker is None:
            return
        try:
            worker.beat()
        except WorkerReplaced as error:
            _log.error("this worker has ended: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the next call may succeed
            if is_heard or not isinstance(error, BlockyardError):
                _log.warning("a heartbeat failed, and is tried again: %r", error)
            is_heard = False
        else:
            is_heard = True
        del worker  # not to be kept alive through the pause
