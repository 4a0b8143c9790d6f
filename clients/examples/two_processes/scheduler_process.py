"""The scheduler process: it asks the server for blocks and the worker for tokens, and never sees a tensor."""

import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection

from blockyard.client import Client, Pool, StaleEpoch
from examples.two_processes.engine import Engine
from examples.two_processes.messages import Computed
from examples.two_processes.reports import Progress, Report, Round
from examples.two_processes.settings import Settings
from examples.two_processes.worker_link import WorkerLink, WorkerLost
from examples.two_processes.workload import Request, make_requests

HOLDER = "two-processes"


def run_scheduler(url: str, pool: str, address: str, settings: Settings, parent: Connection) -> None:
    """Serve all requests through a worker that connects to ``address``; tell ``parent`` of it.

    It sends `Progress` after every step, and a `Report` at the end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    requests = make_requests(settings.num_requests, settings.model_config.vocabulary_size, settings.seed)
    with Client(url) as client, WorkerLink(address) as worker:
        worker.wait_for_worker()  # it is another incarnation, with which an epoch begins
        serving = Serving(client.pool(pool), worker, settings)
        rounds = [serving.round(number, requests, parent) for number in range(settings.num_rounds)]
        parent.send(serving.report(rounds))


class Serving:
    """An engine, its lease, and a worker that may have to be waited for."""

    def __init__(self, pool: Pool, worker: WorkerLink, settings: Settings) -> None:
        self._pool = pool
        self._worker = worker
        self._lease = pool.lease(HOLDER)
        self._engine = Engine(self._lease, pool.describe(), settings)
        self._num_lost_workers = 0

    def round(self, number: int, requests: Sequence[Request], parent: Connection) -> Round:
        """Serve all of ``requests``, once."""
        engine = self._engine
        num_steps, num_copied, num_finished = engine.num_steps, engine.num_copied_blocks, len(engine.finished)
        num_evicted = self._num_evicted_blocks()
        for place, request in enumerate(requests):
            engine.add(f"{number}.{place}", request)
        while engine.has_work:
            self._step()
            parent.send(Progress(num_steps=engine.num_steps, num_finished=len(engine.finished)))
        return Round(
            finished=tuple(engine.finished[num_finished:]),
            num_steps=engine.num_steps - num_steps,
            num_copied_blocks=engine.num_copied_blocks - num_copied,
            num_evicted_blocks=self._num_evicted_blocks() - num_evicted,
        )

    def report(self, rounds: Sequence[Round]) -> Report:
        """Give the lease back, and all with it; tell of the run."""
        self._lease.release()
        return Report(
            rounds=tuple(rounds),
            admissions=tuple(self._engine.admissions),
            num_lost_workers=self._num_lost_workers,
            was_fault_planted=self._engine.was_fault_planted,
        )

    def _step(self) -> None:
        """Blocks from the server, tokens from the worker; either may tell that a worker's memory is gone."""
        try:
            result = self._engine.step()
        except StaleEpoch:
            self._begin_epoch()
            return
        computed = Computed(sampled=())
        if result.scheduled:
            try:
                computed = self._worker.compute(self._engine.batch(result))
            except WorkerLost:
                self._num_lost_workers += 1
                self._engine.give_up_blocks()
                self._worker.wait_for_worker()
                return
        self._engine.take_in(result, computed)

    def _begin_epoch(self) -> None:
        """What was cached is forgotten, and the lease is of the epoch before."""
        self._lease.release()
        self._lease = self._pool.lease(HOLDER)
        self._engine.restart(self._lease)

    def _num_evicted_blocks(self) -> int:
        return self._pool.stats().counters["num_evicted_blocks"]
