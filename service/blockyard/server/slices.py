"""Long looks at a pool, a slice at a time: between two slices calls are served.

One look of a `Slices` goes on at a time: a call waits for one slice of each at most, however many look.
"""

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


class Slices:
    """Takes looks, each a generator that yields between its slices."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, look: Generator[None, None, T]) -> tuple[T, float]:
        """What ``look`` returns at its end, and the seconds that its slices took."""
        async with self._turn:
            cost_s = 0.0
            while True:
                started_s = time.perf_counter()
                try:
                    next(look)
                except StopIteration as end:
                    result: T = end.value
                    return result, cost_s + time.perf_counter() - started_s
                cost_s += time.perf_counter() - started_s
                await asyncio.sleep(0)
