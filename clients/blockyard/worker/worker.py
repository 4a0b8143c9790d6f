"""A worker: one rank's tensors, and its place in the pool.

    with Worker("http://127.0.0.1:8484", "llama", rank=0, device="cuda:0") as worker:
        keys = worker.memory.layers["model.layers.0.self_attn.attn"].part("key")
        ...

It learns block ids from schedulers, never from the server.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

import torch

from blockyard.client import Client, RetryPolicy, Tls
from blockyard.client.origins import origins_of
from blockyard.client.tls import context_for
from blockyard.worker.heartbeats import Heartbeats
from blockyard.worker.memory import BlockMemory
from blockyard.worker.place import Place

STOPPING_S = 1.0
"""How long a worker that closes waits for its thread."""


class Worker:
    """Registers, allocates the rank's memory once, and calls the server in the background until closed.

    Args:
        url: Of the server, ``http://host:port``, or of nodes of one cluster: as `blockyard.client.Client`'s.
        pool: Name of a pool that was made from a plan.
        rank: In the plan, from 0.
        device: Where the tensors go: ``cpu``, ``cuda:0``, ...
        worker_id: Its name, the same after a restart; by default the rank's.
        token: As for `blockyard.client.Client`; it needs the scope ``work``.
        tls: Likewise.

    Attributes:
        memory: All that the rank keeps: allocated once, zeroed, never more than the plan's bytes.
        incarnation: Drawn at random: as old as this memory.

    Raises:
        PlanNotFound: The pool was not made from a plan: create the pool with one, ``create_pool(plan=...)``.
        WorkerReplaced: Another worker has the rank, and is alive.
        InvalidRequest: The plan has no such rank.
        BlockyardError: The pool or the server was not found.
        torch.OutOfMemoryError: The device has less than the plan says; the rank is free again.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        pool: str,
        rank: int = 0,
        device: torch.device | str = "cpu",
        *,
        worker_id: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.rank = rank
        self.device = torch.device(device)
        self.worker_id = f"rank-{rank}" if worker_id is None else worker_id
        origins = origins_of(url)
        self._place = Place(
            partial(Client, origins, token=token, tls=context_for(origins, tls)),
            RetryPolicy(max_attempts=len(origins)),
            pool,
            worker_id=self.worker_id,
            rank=rank,
            device=str(self.device),
        )
        self.incarnation = self._place.incarnation
        with contextlib.ExitStack() as undoing:
            undoing.callback(self._place.leave)  # before it is taken, since the reply may be lost
            memory_map = self._place.take()
            self._heartbeats = Heartbeats(self)
            undoing.callback(self._heartbeats.stop, STOPPING_S)
            self._heartbeats.start()  # before memory is allocated, which may take its time
            self.memory = BlockMemory(memory_map, self.device)
            undoing.pop_all()

    @property
    def epoch(self) -> int:
        """The pool's epoch when the server was last heard: it rises when any rank loses its memory."""
        return self._place.epoch

    @property
    def heartbeat_interval_s(self) -> float:
        """How often the background calls, as the server said last."""
        return self._place.interval_s

    @property
    def has_ended(self) -> bool:
        """Whether it was closed, or another has taken its place: then its blocks are not its own any more."""
        return self._place.has_ended

    def check(self) -> None:
        """Refuse to go on with a worker that has ended. Call it before each step.

        A worker that was replaced learns of it at its next heartbeat, at most `heartbeat_interval_s` later if
        the server answers. Until then this passes.

        Raises:
            WorkerReplaced: Another has taken its place, the pool was made anew and its memory does not fit,
                or it is closed.
        """
        self._place.check()

    def beat(self) -> None:
        """Call the server once, as the background does; register again where the server does not know it.

        Raises:
            WorkerReplaced: As for `check`; it has ended.
            BlockyardError: The server was not reached, or its pool is gone: a later call may succeed.
        """
        self._place.call()

    def close(self) -> None:
        """Stop calling, and tell the server that the memory is gone. The tensors end with their last user.

        A server that is not reached finds the worker lost instead. Trying takes two heartbeat intervals at
        most, of 1 to 5 seconds each. In a forked child the server is told nothing.
        """
        self._heartbeats.stop(STOPPING_S)
        self._place.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ended = ", ended" if self.has_ended else ""
        return f"<Worker {self.worker_id!r} of pool {self._place.pool!r}, rank {self.rank}{ended}>"
