"""A worker's place in its pool: taken once, kept by calling, left in the end.

One call at a time: whoever leaves waits for the call under way, which may be registering, and is the last to
speak to the server. A forked child has a copy of the place, and no part in it.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable

from blockyard.client import Client, RetryPolicy
from blockyard.client.reports import Registration
from blockyard.core.errors import (
    BlockyardError,
    InvalidRequest,
    PlanNotFound,
    WorkerNotFound,
    WorkerReplaced,
)
from blockyard.planning.memory_map import MemoryMap

MIN_CALL_S = 1.0
"""No call is given up sooner, however often the server wants to be called."""

MAX_CALL_S = 5.0
"""None is waited for longer, so that leaving takes seconds."""


class Place:
    """One rank's place in a pool.

    Args:
        client_of: Makes a client of the server, with the bounds of its calls as keyword arguments.
        brief: Tries of a call that the next one, or nobody, makes up for: one at each node.
        pool: Name of the pool.
        worker_id: Whose place it is.
        rank: In the pool's plan, from 0.
        device: Where its tensors lie, for people.

    Attributes:
        incarnation: Drawn at random.
        epoch: The pool's, when the server was last heard; 0 before.
        interval_s: From one call to the next, as the server said last.
    """

    def __init__(
        self,
        client_of: Callable[..., Client],
        brief: RetryPolicy,
        pool: str,
        *,
        worker_id: str,
        rank: int,
        device: str,
    ) -> None:
        self.pool = pool
        self.worker_id = worker_id
        self.rank = rank
        self.device = device
        self.incarnation = secrets.token_hex(8)
        self.epoch = 0
        self.interval_s = MIN_CALL_S
        self._client_of = client_of
        self._brief = brief
        self._process_id = os.getpid()
        self._lock = threading.RLock()  # a signal's handler may leave while its own thread calls
        self._map: MemoryMap | None = None
        self._is_registered = False
        self._is_left = False
        self._ended: WorkerReplaced | None = None
        self._client = self._brief_client()

    @property
    def has_ended(self) -> bool:
        """Whether it was left, or lost for good."""
        return self._ended is not None

    def check(self) -> None:
        """Refuse a place that has ended.

        Raises:
            WorkerReplaced: Why it has.
        """
        if self._ended is not None:
            raise self._ended.again()

    def take(self) -> MemoryMap:
        """Register for the first time, as patiently as any client; leave it where this fails.

        Returns:
            What the rank has to allocate.

        Raises:
            PlanNotFound: The pool was not made from a plan.
            BlockyardError: The server refuses, or was not reached. It may know the worker nevertheless.
        """
        with self._lock, self._client_of() as client:
            memory = self._register(client).memory
            if memory is None:
                raise PlanNotFound(
                    f"pool {self.pool!r} was not made from a plan, and nobody knows its tensors: create the "
                    "pool with a plan"
                )
            self._map = memory
            self._is_registered = True
            return memory

    def call(self) -> None:
        """Call the server once; register again where it does not know the worker, or may not.

        Raises:
            WorkerReplaced: The place has ended, now or before.
            BlockyardError: The server was not reached, or the pool is gone.
        """
        if os.getpid() != self._process_id:
            raise WorkerReplaced(f"worker {self.worker_id!r} is the parent's, not this process's")
        with self._lock:
            self.check()
            try:
                if self._is_registered:
                    self._heartbeat()
                if not self._is_registered:
                    self._register_again()
            except WorkerReplaced as error:
                self._end(error)
                raise
            except Exception:
                self.check()  # left in the meantime: then that is why
                raise
            self.check()

    def leave(self) -> None:
        """Tell the server that the worker is gone, unless this is a forked child. May be repeated.

        It takes the rest of a call under way, and one more.
        """
        ended = WorkerReplaced(f"worker {self.worker_id!r} is closed")
        if os.getpid() != self._process_id:
            self._end(ended)
            return
        with self._lock:
            self._end(ended)
            if not self._is_left:
                self._is_left = True
                self._remove()
                self._client.close()

    def _heartbeat(self) -> None:
        try:
            noted = self._client.pool(self.pool).heartbeat(self.worker_id, self.incarnation)
        except WorkerNotFound:
            self._is_registered = False
        else:
            self._note(noted.epoch, noted.heartbeat_ms)

    def _register_again(self) -> None:
        """Until a reply has come, the server may know the worker, and of a plan that it does not fit."""
        try:
            if self._register(self._client).memory != self._map:
                self._end(
                    WorkerReplaced("the pool was made anew from another plan: this memory does not fit")
                )
        except (InvalidRequest, PlanNotFound) as error:
            self._end(WorkerReplaced(f"the pool was made anew, and has no place for this worker: {error}"))
        finally:
            if self.has_ended:
                self._remove()
        self.check()
        self._is_registered = True
        self._client.close()
        self._client = self._brief_client()

    def _register(self, client: Client) -> Registration:
        registration = client.pool(self.pool).register_worker(
            self.worker_id, rank=self.rank, device=self.device, incarnation=self.incarnation
        )
        self._note(registration.epoch, registration.heartbeat_ms)
        return registration

    def _note(self, epoch: int, heartbeat_ms: int) -> None:
        self.epoch = epoch
        self.interval_s = min(max(heartbeat_ms, 1) / 1000, threading.TIMEOUT_MAX)

    def _end(self, why: WorkerReplaced) -> None:
        if self._ended is None:
            self._ended = why

    def _remove(self) -> None:
        """Have the server forget this incarnation; where it is not reached, it finds the worker lost."""
        with contextlib.suppress(BlockyardError), self._brief_client() as client:
            client.pool(self.pool).remove_worker(self.worker_id, self.incarnation)

    def _brief_client(self) -> Client:
        call_s = min(max(self.interval_s, MIN_CALL_S), MAX_CALL_S)
        return self._client_of(timeout_s=call_s, retries=self._brief)
