"""A worker: one rank's tensors, and its place in the pool.

    with Worker("http://127.0.0.1:8484", "llama", rank=0, device="cuda:0") as worker:
        keys = worker.memory.layers["model.layers.0.self_attn.attn"].part("key")
        ...

It learns block ids from schedulers, never from the server.
"""

import contextlib
import secrets
from types import TracebackType
from typing import Self

import torch

from blockyard.client import NO_RETRY, Client
from blockyard.client.reports import Registration
from blockyard.core.errors import BlockyardError, PlanNotFound, WorkerNotFound, WorkerReplaced
from blockyard.worker.heartbeats import Heartbeats
from blockyard.worker.memory import BlockMemory

STOPPING_S = 1.0
"""How long a worker that closes waits for a heartbeat under way."""


class Worker:
    """Registers, allocates the rank's memory once, and calls the server in the background until closed.

    Args:
        url: Of the server, ``http://host:port``.
        pool: Name of a pool that was made from a plan.
        rank: In the plan, from 0.
        device: Where the tensors go: ``cpu``, ``cuda:0``, ...
        worker_id: Its name, the same after a restart; by default the rank's.

    Attributes:
        memory: All that the rank keeps: allocated once, zeroed, never more than the plan's bytes.
        incarnation: Drawn at random: as old as this memory.

    Raises:
        PlanNotFound: The pool was not made from a plan.
        WorkerReplaced: Another worker has the rank, and is alive.
        InvalidRequest: The plan has no such rank.
        BlockyardError: The pool or the server was not found.
        torch.OutOfMemoryError: The device has less than the plan says; the rank is free again.
    """

    def __init__(
        self,
        url: str,
        pool: str,
        rank: int = 0,
        device: torch.device | str = "cpu",
        *,
        worker_id: str | None = None,
    ) -> None:
        self.rank = rank
        self.device = torch.device(device)
        self.worker_id = f"rank-{rank}" if worker_id is None else worker_id
        self.incarnation = secrets.token_hex(8)
        self._ended: BlockyardError | None = None
        with contextlib.ExitStack() as undoing:
            self._client = Client(url)
            undoing.callback(self._client.close)
            self._pool = self._client.pool(pool)
            registration = self._register()
            interval_s = registration.heartbeat_ms / 1000
            self._caller = Client(url, timeout_s=interval_s, retries=NO_RETRY)
            self._heartbeats = Heartbeats(self, interval_s)
            undoing.callback(self.close)
            if registration.memory is None:
                raise PlanNotFound(f"pool {pool!r} was not made from a plan, and nobody knows its tensors")
            self._map = registration.memory
            self._heartbeats.start()  # before memory is allocated, which may take its time
            self.memory = BlockMemory(self._map, self.device)
            undoing.pop_all()

    @property
    def epoch(self) -> int:
        """The pool's epoch when the server was last heard: it rises when any rank loses its memory."""
        return self._epoch

    @property
    def has_ended(self) -> bool:
        """Whether it was closed, or another has taken its place: then its blocks are not its own any more."""
        return self._ended is not None

    def check(self) -> None:
        """Refuse to go on with a worker that has ended. Call it before each step.

        Raises:
            WorkerReplaced: Another has taken its place, or it is closed.
        """
        if self._ended is not None:
            raise self._ended.again()

    def beat(self) -> None:
        """Call the server once, as the background does; register again where the server does not know it.

        Raises:
            WorkerReplaced: Another has taken its place.
            BlockyardError: The server was not reached, or its pool is gone.
        """
        try:
            self._call()
        except WorkerReplaced as error:
            self._ended = error
            raise

    def close(self) -> None:
        """Stop calling, and tell the server that the memory is gone. The tensors end with their last user.

        A server that is not reached finds the worker lost instead.
        """
        self._heartbeats.stop(STOPPING_S)
        if self._ended is None:
            self._ended = WorkerReplaced(f"worker {self.worker_id!r} is closed")
            with contextlib.suppress(BlockyardError):
                self._pool.remove_worker(self.worker_id, self.incarnation)
        self._caller.close()
        self._client.close()

    def _call(self) -> None:
        pool = self._caller.pool(self._pool.name)
        try:
            self._epoch = pool.heartbeat(self.worker_id, self.incarnation).epoch
        except WorkerNotFound:
            if self._register().memory != self._map:
                pool.remove_worker(self.worker_id, self.incarnation)
                raise WorkerReplaced(
                    "the pool was made anew from another plan: this memory does not fit"
                ) from None

    def _register(self) -> Registration:
        registration = self._pool.register_worker(
            self.worker_id, rank=self.rank, device=str(self.device), incarnation=self.incarnation
        )
        self._epoch = registration.epoch
        return registration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ended = ", ended" if self.has_ended else ""
        return f"<Worker {self.worker_id!r} of pool {self._pool.name!r}, rank {self.rank}{ended}>"
