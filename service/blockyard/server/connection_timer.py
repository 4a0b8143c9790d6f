"""What a connection may take and have: its limits, and the one timer that holds it to them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The bounds of connections.

    Attributes:
        max_connections: Open at a time.
        max_head_bytes: Of a request: its first line and headers; and of what stands behind a chunked body.
        head_timeout_s: From a head's first byte to its last; from a connection's beginning to its first byte.
        idle_timeout_s: From an answer to the next request; and for the rest of what was sent either way.
    """

    max_connections: int
    max_head_bytes: int
    head_timeout_s: int
    idle_timeout_s: int


def _nothing() -> None:
    pass


class ConnectionTimer:
    """Tells when something that was expected has not happened.

    Setting a timer of the loop anew takes longer than many a call. So there is one at a time, which looks at
    the deadline when it fires, and is only set anew where that is sooner.

    Args:
        loop: Whose time it is.
        on_late: Called once each time that a deadline has passed.
    """

    __slots__ = ("_deadline_s", "_fires_at_s", "_handle", "_loop", "_on_late")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_late: Callable[[], None]) -> None:
        self._loop = loop
        self._on_late = on_late
        self._deadline_s: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at_s = 0.0

    def expect(self, within_s: float) -> None:
        """Something is to happen within so long: in place of what was expected before."""
        deadline_s = self._deadline_s = self._loop.time() + within_s
        if self._handle is None:
            self._set(deadline_s)
        elif self._fires_at_s > deadline_s:
            self._handle.cancel()
            self._set(deadline_s)

    def rest(self) -> None:
        """Nothing is expected."""
        self._deadline_s = None

    def stop(self) -> None:
        """Nothing is expected any more, and ``on_late`` is forgotten: it may be what has this timer."""
        self._deadline_s = None
        self._on_late = _nothing
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self, at_s: float) -> None:
        self._fires_at_s = at_s
        self._handle = self._loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._handle = None
        deadline_s = self._deadline_s
        if deadline_s is None:
            return
        if deadline_s > self._loop.time():
            self._set(deadline_s)
        else:
            self._deadline_s = None
            self._on_late()
