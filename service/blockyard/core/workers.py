"""The workers that hold a pool's tensors: one a rank, known by what it said of itself last.

A worker's memory is as old as its ``incarnation``. One that has been silent for `Workers.timeout_ms` is lost,
until it calls again. No clock: times are given.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum, auto
from typing import Any

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest, NotReady, WorkerNotFound, WorkerReplaced
from blockyard.core.ids import WorkerId

MAX_WORKERS = 4096
"""Of one pool."""

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
        worker_id: Its name, the same after a restart.
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
    """A pool's workers; none at first.

    Args:
        timeout_ms: How long a worker may be silent, at least 1.
        num_ranks: As many have to be there once any of them was; None: those that are registered.
    """

    __slots__ = ("_by_id", "_first_loss_ms", "_has_vacant_rank", "_num_ranks", "_were_there", "timeout_ms")

    def __init__(self, timeout_ms: int, num_ranks: int | None) -> None:
        self.timeout_ms = timeout_ms
        self._num_ranks = num_ranks
        self._were_there = False
        self._by_id: dict[WorkerId, Worker] = {}
        self._first_loss_ms: int | None = None  # unless it calls
        self._has_vacant_rank = False

    def __len__(self) -> int:
        return len(self._by_id)

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
        """Refuse while a worker is lost, or a rank has none.

        Raises:
            NotReady: One is, or has; the figures name their ranks.
        """
        if not self._has_vacant_rank and (self._first_loss_ms is None or now_ms < self._first_loss_ms):
            return
        lost = {worker.rank for worker in self._by_id.values() if self.is_lost(worker, now_ms)}
        ranks = sorted(lost | self._vacant_ranks())
        raise NotReady(
            f"no worker has called for ranks {ranks} in the last {self.timeout_ms} ms: no blocks are given "
            "until all ranks are there",
            {"retry_after_ms": self.heartbeat_ms, "lost_ranks": ranks},
        )

    def register(self, newcomer: Worker) -> Memory:
        """Note ``newcomer``, which takes the place of its rank's lost worker, or of its own earlier self.

        Raises:
            WorkerReplaced: The rank is that of another worker, which is not lost.
            InvalidRequest: There would be too many.
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
        if len(self._by_id) - len(displaced) >= MAX_WORKERS:
            raise InvalidRequest.of("worker_id", f"the pool has {MAX_WORKERS} workers already")
        for known in displaced:
            del self._by_id[known.worker_id]
        self._by_id[newcomer.worker_id] = newcomer
        self._were_there = True
        self._note_members()
        if not displaced:
            return Memory.FIRST
        is_same = all(known.is_of_same_memory(newcomer) for known in displaced)
        return Memory.KEPT if is_same else Memory.REPLACED

    def note_heartbeat(self, worker_id: WorkerId, incarnation: str | None, now_ms: int) -> None:
        """A worker is there. Raises as `find`."""
        self.find(worker_id, incarnation).last_heartbeat_ms = now_ms
        self._note_times()

    def note_all(self, now_ms: int) -> None:
        """All of them are there."""
        for worker in self._by_id.values():
            worker.last_heartbeat_ms = now_ms
        self._note_times()

    def remove(self, worker_id: WorkerId, incarnation: str | None) -> None:
        """Forget a worker. Raises as `find`."""
        del self._by_id[self.find(worker_id, incarnation).worker_id]
        self._note_members()

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

    def to_state(self) -> dict[str, Any]:
        """The workers as plain data."""
        return {
            "were_there": self._were_there,
            "workers": [asdict(worker) for worker in self._by_id.values()],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], timeout_ms: int, num_ranks: int | None) -> "Workers":
        """The workers that ``state`` was taken from."""
        workers = cls(timeout_ms, num_ranks)
        workers._were_there = state["were_there"]
        workers._by_id = {each["worker_id"]: Worker(**each) for each in state["workers"]}
        workers._note_members()
        return workers

    def _vacant_ranks(self) -> set[int]:
        """Ranks that have no worker, once any had one."""
        if self._num_ranks is None or not self._were_there:
            return set()
        return set(range(self._num_ranks)) - {worker.rank for worker in self._by_id.values()}

    def _note_members(self) -> None:
        self._has_vacant_rank = bool(self._vacant_ranks())
        self._note_times()

    def _note_times(self) -> None:
        times = [worker.last_heartbeat_ms for worker in self._by_id.values()]
        self._first_loss_ms = min(times) + self.timeout_ms if times else None
