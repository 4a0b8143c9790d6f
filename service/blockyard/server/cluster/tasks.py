"""Tasks that are ended for certain.

Before Python 3.12 `asyncio.wait_for` returns its result where a cancellation comes at the same time, and the
client of NATS waits by it for every answer: a task that is cancelled once may go on.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from blockyard.server.cluster.connection import PASSING

log = structlog.get_logger("blockyard.cluster")

AGAIN_S = 0.1


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, as often as that takes; what came of them does not matter any more."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_S)


async def all_of(*works: Coroutine[Any, Any, None]) -> None:
    """Do all at the same time until one fails, whose error this raises; none goes on behind it."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end(*tasks)


class Chores:
    """What is done beside all else, and is begun again by others where it fails; nothing at first."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, chore: Coroutine[Any, Any, None]) -> None:
        """Begin a chore."""
        task = asyncio.create_task(_logged(chore))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Cancel all that go on."""
        await end(*self._tasks)


async def _logged(chore: Coroutine[Any, Any, None]) -> None:
    try:
        await chore
    except PASSING as error:
        log.warning("a chore has failed", chore=repr(chore), error=repr(error))
    except Exception:
        log.exception("a chore has failed", chore=repr(chore))
