"""Ways to put requests to a pool: one after the other, several at a time, or many in one step.

All of them allocate a request's tokens, which publishes its blocks, and free it again.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import click

from blockyard.client.client import Client, Pool
from blockyard.client.lease import Lease
from blockyard.core.commands import Admission
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import SequenceHandle, SequenceId
from blockyard.core.replies import Refused
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.tally import Tally

LEASE_TTL_MS = 30_000
HOLDER = "blockyard replay"


class Driver(Protocol):
    """Puts all requests to a pool, and notes in a tally what came of each.

    Raises BlockyardError: what the server refused for another reason than too few blocks.
    """

    def __call__(self, pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
        """Return when the last request is free again."""
        ...


def one_at_a_time(pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
    """A `Driver` with one call at a time: two for each request."""
    with pool.lease(HOLDER, LEASE_TTL_MS) as lease:
        for number, request in enumerate(requests):
            _replay(lease, number, request, tally)


class ManyAtATime:
    """A `Driver` of many schedulers, each with its own connection and lease, and one request at a time.

    Args:
        url: The server's.
        num_schedulers: Threads, connections, and sequences in flight.
    """

    def __init__(self, url: str, num_schedulers: int) -> None:
        self._url = url
        self._num_schedulers = num_schedulers

    def __call__(self, pool: Pool, requests: Sequence[Request], tally: Tally) -> None:
        """As `Driver`: the requests are taken in order; which of those in flight comes first is open."""
        source = _Source(requests)

        def schedule() -> None:
            try:
                with (
                    Client(self._url) as client,
                    client.pool(pool.name).lease(HOLDER, LEASE_TTL_MS) as lease,
                ):
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
                    elif answer.code == InsufficientBlocks.code:
                        tally.refused()
                    else:
                        raise click.ClickException(f"request {number} was refused: {answer.code}")
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
