"""Ways to put requests to a pool: one after the other, several at a time, or many in one step.

All of them allocate a request's tokens, which publishes its blocks, and free it again.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Protocol

from blockyard.client.client import Pool
from blockyard.client.errors import read_problem
from blockyard.client.lease import Lease
from blockyard.core.commands import Admission
from blockyard.core.errors import InsufficientBlocks, QuotaExceeded
from blockyard.core.ids import SequenceHandle, SequenceId
from blockyard.core.replies import Refused
from blockyard.server.commands.replay.options import ReplayOptions
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.tally import Tally

LEASE_TTL_MS = 30_000
HOLDER = "blockyard replay"


class Driver(Protocol):
    """Puts all requests to a pool, and notes in a tally what came of each.

    A request for which too few blocks are free is noted as refused, and the others go on.
    """

    def __call__(self, pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
        """Return when the last request is free again.

        Raises:
            BlockyardError: The server refused for another reason than too few blocks.
        """
        ...


def driver_of(options: ReplayOptions) -> Driver:
    """The driver that ``options`` ask for."""
    if options.steps:
        return InSteps(options.concurrency)
    return one_at_a_time if options.concurrency == 1 else ManyAtATime(options.concurrency)


def one_at_a_time(pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
    """A `Driver` with one call at a time: two for each request."""
    with pool.lease(HOLDER, LEASE_TTL_MS) as lease:
        for number, request in enumerate(requests):
            _replay(lease, number, request, tally)


class ManyAtATime:
    """A `Driver` of many schedulers, each with its own lease, and one request at a time.

    Args:
        num_schedulers: Threads, leases, and sequences in flight.
    """

    def __init__(self, num_schedulers: int) -> None:
        self._num_schedulers = num_schedulers

    def __call__(self, pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
        """As `Driver`: the requests are taken in order; which of those in flight comes first is open."""
        source = _Source(requests)

        def schedule() -> None:
            try:
                with pool.lease(HOLDER, LEASE_TTL_MS) as lease:
                    for number, request in source:
                        _replay(lease, number, request, tally)
            finally:
                source.close()  # it is empty, or there was an error: then the others end too

        with ThreadPoolExecutor(self._num_schedulers) as threads:
            try:
                for scheduler in [threads.submit(schedule) for _ in range(self._num_schedulers)]:
                    scheduler.result()
            finally:
                source.close()


class InSteps:
    """A `Driver` that sends steps: each frees the sequences of the step before and admits as many new ones.

    Args:
        num_sequences: Admitted by a step.
    """

    def __init__(self, num_sequences: int) -> None:
        self._num_sequences = num_sequences

    def __call__(self, pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
        """As `Driver`."""
        held: list[SequenceHandle] = []
        with pool.lease(HOLDER, LEASE_TTL_MS) as lease:
            for start in range(0, len(requests), self._num_sequences):
                admit = [
                    Admission(
                        sequence_id=SequenceId(f"request-{number}"),
                        num_tokens=request.num_tokens,
                        block_hashes=request.block_hashes,
                    )
                    for number, request in enumerate(requests[start : start + self._num_sequences], start)
                ]
                started_s = time.perf_counter()
                stepped = lease.step(free=held, admit=admit)
                tally.waited(time.perf_counter() - started_s)
                held = []
                for number, answer in enumerate(stepped.admit, start):
                    if not isinstance(answer, Refused):
                        held.append(answer.sequence)
                        tally.served(number, answer.num_cached_tokens or 0)
                    elif answer.code in (InsufficientBlocks.code, QuotaExceeded.code):
                        tally.refused()
                    else:
                        raise read_problem(200, asdict(answer))
            lease.step(free=held)


class _Source:
    """Numbered requests, handed to whichever thread asks next, until it is closed."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._numbered = enumerate(requests)
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def __iter__(self) -> Iterator[tuple[int, Request]]:
        while not self._is_closed:
            with self._lock:
                found = next(self._numbered, None)
            if found is None:
                return
            yield found


def _replay(lease: Lease, number: int, request: Request, tally: Tally) -> None:
    name = f"request-{number}"
    started_s = time.perf_counter()
    try:
        given = lease.allocate(name, request.num_tokens, block_hashes=request.block_hashes)
    except InsufficientBlocks:
        tally.waited(time.perf_counter() - started_s)
        tally.refused()
        return
    tally.waited(time.perf_counter() - started_s)
    tally.served(number, given.num_cached_tokens or 0)
    lease.free([name])
