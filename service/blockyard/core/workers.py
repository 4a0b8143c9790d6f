"""The workers that hold a pool's tensors: one a rank, known by what it said of itself last.

A worker's memory is as old as its ``incarnation``. One that has been silent for `Workers.timeout_ms` is lost,
until it calls again. No clock: times are given.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import Any

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import NotReady, WorkerNotFound, WorkerReplaced
from blockyard.core.ids import WorkerId

HEARTBEATS_PER_TIMEOUT = 5
"""A worker calls this often within the time after which it is lost."""


class Memory(Enum):
    """What a worker that registers says of its rank's memory."""

    KEPT = auto()
    """It is what it was."""
    FIRST = auto()
    """There was none that the pool knew of."""
    REPLACED = auto()
    """What was there is gone."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """A process that holds the tensors of one rank.

    Attributes:
        rank: Its place in the pool's plan, from 0.
        device: Where its tensors lie, in its own words.
        incarnation: Another one means that its memory is new.
        last_heartbeat_ms: When it called last, on the clock that commands are given.
    """

    worker_id: WorkerId
    rank: int
    device: str
    incarnation: str
    last_heartbeat_ms: int

    def is_of_same_memory(self, other: "Worker") -> bool:
        """Whether ``other`` is this worker, come again with what its memory held."""
        return (self.worker_id, self.rank, self.incarnation) == (
            other.worker_id,
            other.rank,
            other.incarnation,
        )


class Workers:
    """None at first.

    Args:
        timeout_ms: How long a worker may be silent, at least 1.

    Attributes:
        first_loss_ms: When the first of them is lost, unless it calls; None while there are none.
    """

    __slots__ = ("_by_id", "first_loss_ms", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._by_id: dict[WorkerId, Worker] = {}
        self.first_loss_ms: int | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, worker_id: object) -> bool:
        return worker_id in self._by_id

    def __iter__(self) -> Iterator[Worker]:
        """All of them, by rank."""
        return iter(sorted(self._by_id.values(), key=lambda worker: worker.rank))

    @property
    def heartbeat_ms(self) -> int:
        """How often a worker has to call."""
        return div_ceil(self.timeout_ms, HEARTBEATS_PER_TIMEOUT)

    def is_lost(self, worker: Worker, now_ms: int) -> bool:
        """Whether ``worker`` has been silent for too long."""
        return now_ms >= worker.last_heartbeat_ms + self.timeout_ms

    def num_lost(self, now_ms: int) -> int:
        """How many are lost."""
        return sum(self.is_lost(worker, now_ms) for worker in self._by_id.values())

    def check_all_there(self, now_ms: int) -> None:
        """Refuse while a worker is lost.

        Raises:
            NotReady: One is.
        """
        if self.first_loss_ms is None or now_ms < self.first_loss_ms:
            return
        ranks = [worker.rank for worker in self if self.is_lost(worker, now_ms)]
        raise NotReady(
            f"the workers of ranks {ranks} have not called for {self.timeout_ms} ms: no blocks are given "
            "until they are back",
            {"retry_after_ms": self.heartbeat_ms, "lost_ranks": ranks},
        )

    def register(self, newcomer: Worker) -> Memory:
        """Note ``newcomer``, which takes the place of its rank's lost worker, or of its own earlier self.

        Raises:
            WorkerReplaced: The rank is that of another worker, which is not lost.
        """
        displaced = [
            known
            for known in self._by_id.values()
            if known.worker_id == newcomer.worker_id or known.rank == newcomer.rank
        ]
        for known in displaced:
            is_other = known.worker_id != newcomer.worker_id
            if is_other and not self.is_lost(known, newcomer.last_heartbeat_ms):
                raise WorkerReplaced(
                    f"rank {known.rank} is worker {known.worker_id!r}'s, which is alive: stop it first, or "
                    "register under its id to take its place"
                )
        for known in displaced:
            del self._by_id[known.worker_id]
        self._by_id[newcomer.worker_id] = newcomer
        self._note_times()
        if not displaced:
            return Memory.FIRST
        is_same = all(known.is_of_same_memory(newcomer) for known in displaced)
        return Memory.KEPT if is_same else Memory.REPLACED

    def note_heartbeat(self, worker_id: WorkerId, incarnation: str | None, now_ms: int) -> None:
        """A worker is there. Raises as `find`."""
        self.find(worker_id, incarnation).last_heartbeat_ms = now_ms
        self._note_times()

    def remove(self, worker_id: WorkerId, incarnation: str | None) -> None:
        """Forget a worker. Raises as `find`."""
        del self._by_id[self.find(worker_id, incarnation).worker_id]
        self._note_times()

    def find(self, worker_id: WorkerId, incarnation: str | None) -> Worker:
        """The worker of this id.

        Args:
            worker_id: Whose.
            incarnation: The caller's; None where it does not say.

        Raises:
            WorkerNotFound: There is none.
            WorkerReplaced: The caller is an earlier incarnation of it.
        """
        worker = self._by_id.get(worker_id)
        if worker is None:
            raise WorkerNotFound(f"the pool knows no worker {worker_id!r}: register it first")
        if incarnation not in (None, worker.incarnation):
            raise WorkerReplaced(
                f"another incarnation of worker {worker_id!r} has taken this one's place: stop, and do not "
                "touch its blocks"
            )
        return worker

    def to_state(self) -> list[dict[str, Any]]:
        """The workers as plain data."""
        return [asdict(worker) for worker in self._by_id.values()]

    @classmethod
    def from_state(cls, state: list[dict[str, Any]], timeout_ms: int) -> "Workers":
        """The workers that ``state`` was taken from."""
        workers = cls(timeout_ms)
        workers._by_id = {each["worker_id"]: Worker(**each) for each in state}
        workers._note_times()
        return workers

    def _note_times(self) -> None:
        times = [worker.last_heartbeat_ms for worker in self._by_id.values()]
        self.first_loss_ms = min(times) + self.timeout_ms if times else None
