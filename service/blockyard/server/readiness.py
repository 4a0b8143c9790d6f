"""Whether a server takes requests, and what it says while it does not."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from blockyard.core.errors import NotReady

RETRY_AFTER_MS = 100

Progress: TypeAlias = Callable[[], dict[str, Any]]


class Readiness:
    """Not ready at first.

    Attributes:
        is_ready: From the end of the start to the beginning of the stop.
        progress: Figures of what the start is still about.
    """

    def __init__(self) -> None:
        self.is_ready = False
        self.progress: Progress = dict
        self._begun = asyncio.Event()

    def begin(self) -> None:
        """The start is complete."""
        self.is_ready = True
        self.progress = dict
        self._begun.set()

    @property
    def has_begun(self) -> bool:
        """Whether the start was ever complete."""
        return self._begun.is_set()

    def end(self) -> None:
        """The stop has begun."""
        self.is_ready = False

    async def wait(self) -> None:
        """Until the start is complete."""
        await self._begun.wait()

    def check(self) -> None:
        """Refuse while it is not.

        Raises:
            NotReady: It is not.
        """
        if not self.is_ready:
            figures = {"retry_after_ms": RETRY_AFTER_MS, **self.progress()}
            raise NotReady("the server is starting or stopping: try again", figures)
