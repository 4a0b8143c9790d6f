"""Callers as they should be: ``python -m soak.well_behaved PORT NUMBER LOG``, until SIGTERM.

Each has a client and a lease of its own, and serves one short request after the other: prompts of which some
share a prefix, a few tokens more, and free. What each call took is a line of the log: when it began, on the
monotonic clock, and its milliseconds, with all tries and pauses that it took.
"""

import asyncio
import random
import signal
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TextIO

from blockyard.client import AsyncClient, RetryPolicy
from soak.settings import SERVED

PAUSE_S = 0.1
"""Between two requests of a caller."""
NUM_DECODES = 3


class Caller:
    """One of them."""

    def __init__(self, client: AsyncClient, number: int, log: TextIO) -> None:
        self._client = client
        self._number = number
        self._random = random.Random(number)
        self._log = log

    async def run(self, should_end: asyncio.Event) -> None:
        """Serve until told to end, and release the lease."""
        pool = self._client.pool(SERVED.rpartition("/")[2])
        async with pool.lease(f"well-behaved {self._number}") as lease:
            num_served = 0
            while not should_end.is_set():
                num_served += 1
                name = f"{self._number}-{num_served}"
                tokens = [self._random.randrange(8)] * 160 + [num_served] * self._random.randrange(1, 200)
                await self._timed(lease.allocate(name, len(tokens), token_ids=tokens))
                await self._timed(lease.commit(name, len(tokens)))
                for num_more in range(1, NUM_DECODES):
                    num_tokens = len(tokens) + num_more
                    await self._timed(lease.allocate(name, num_tokens, token_ids=[num_more]))
                await self._timed(lease.free([name]))
                await asyncio.sleep(self._random.uniform(0, 2 * PAUSE_S))

    async def _timed(self, call: Awaitable[object]) -> None:
        began_s = time.monotonic()
        await call
        self._log.write(f"{began_s:.6f} {1_000 * (time.monotonic() - began_s):.3f}\n")


async def run(port: int, number: int, log: Path) -> None:
    """So many callers, until SIGTERM."""
    should_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, should_end.set)
    patient = RetryPolicy(max_attempts=50, max_total_s=60.0)
    async with AsyncClient(f"http://127.0.0.1:{port}", retries=patient) as client:
        with log.open("w", buffering=1) as lines:
            await asyncio.gather(*(Caller(client, each, lines).run(should_end) for each in range(number)))


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
