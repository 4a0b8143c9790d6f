"""A pool's workers without shortcuts: a list, and what follows from it."""

from dataclasses import dataclass

from blockyard.core.commands import RegisterWorker
from blockyard.core.errors import NotReady, WorkerNotFound, WorkerReplaced


@dataclass(kw_only=True)
class NaiveWorker:
    """``seen_ms``: when it called last."""

    worker_id: str
    rank: int
    device: str
    incarnation: str
    seen_ms: int

    @property
    def memory(self) -> tuple[str, int, str]:
        """Two workers with the same of it are one."""
        return self.worker_id, self.rank, self.incarnation


class NaiveWorkers:
    """``timeout_ms``: how long one may be silent. ``num_ranks``: how many there have to be."""

    def __init__(self, timeout_ms: int, num_ranks: int | None) -> None:
        self.timeout_ms = timeout_ms
        self.num_ranks = num_ranks
        self.were_there = False
        self.known: list[NaiveWorker] = []

    @property
    def heartbeat_ms(self) -> int:
        """A fifth of the timeout, rounded up."""
        return (self.timeout_ms + 4) // 5

    def lost(self, now_ms: int) -> list[NaiveWorker]:
        return [worker for worker in self.known if now_ms - worker.seen_ms >= self.timeout_ms]

    def require_all(self, now_ms: int) -> None:
        needed = [worker.rank for worker in self.known]
        if self.were_there and self.num_ranks is not None:
            needed += range(self.num_ranks)
        there = [worker.rank for worker in self.known if worker not in self.lost(now_ms)]
        ranks = sorted(set(needed) - set(there))
        if ranks:
            raise NotReady("lost", {"retry_after_ms": self.heartbeat_ms, "lost_ranks": ranks})

    def named(self, worker_id: str, incarnation: str | None = None) -> NaiveWorker:
        for worker in self.known:
            if worker.worker_id == worker_id:
                if incarnation is not None and worker.incarnation != incarnation:
                    raise WorkerReplaced("by another incarnation")
                return worker
        raise WorkerNotFound("none has this id")

    def register(self, command: RegisterWorker, now_ms: int, *, in_use: bool) -> bool:
        """Note a worker; returns whether what the blocks hold is gone.

        It is unless the worker is known with this memory, or nobody was there and nothing was held.
        """
        new = NaiveWorker(
            worker_id=command.worker_id,
            rank=command.rank,
            device=command.device,
            incarnation=command.incarnation,
            seen_ms=now_ms,
        )
        gone = [
            worker for worker in self.known if worker.worker_id == new.worker_id or worker.rank == new.rank
        ]
        for worker in gone:
            if worker.worker_id != new.worker_id and worker not in self.lost(now_ms):
                raise WorkerReplaced("the rank is taken")
        self.known = [worker for worker in self.known if worker not in gone] + [new]
        self.were_there = True
        if gone:
            return {worker.memory for worker in gone} != {new.memory}
        return in_use
