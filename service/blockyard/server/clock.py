"""The time that commands are given: the wall clock when the process began, moved on by the steady clock.

A wall clock that is set while the server runs neither ends nor prolongs a lease. Nor does a time in which the
server itself stood still, be it suspended or busy with one long call: whoever wanted to renew a lease in the
meantime waits in a socket, and is not to find it gone.

    ticks       |    |    |    |                          |    |
    real time   0----1----2----3--------------------------9---10
    our time    0----1----2----3----------]               4----5     at most MAX_STEP after a tick

Whoever is told a time is told the real one: `real_ms`.
"""

import time
from collections.abc import Callable

MAX_STEP_NS = 200_000_000
"""How far time moves on without a tick; ticks come far more often unless the server stands still."""


class Clock:
    """Milliseconds since 1970 that never go back. Call `tick` often.

    Args:
        steady_ns: The steady clock, in nanoseconds.
    """

    __slots__ = ("_offset_ns", "_start_ns", "_steady_ns", "_ticked_ns")

    def __init__(self, steady_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._steady_ns = steady_ns
        self._ticked_ns = steady_ns()
        self._start_ns = self._offset_ns = time.time_ns() - self._ticked_ns

    def now_ms(self) -> int:
        """The time in whole milliseconds."""
        return self._time_ns(self._steady_ns()) // 1_000_000

    def real_ms(self, time_ms: int) -> int:
        """When it will really be ``time_ms``, a time of ours to come, unless the server stands still."""
        steady_ns = self._steady_ns()
        return time_ms + (self._start_ns + steady_ns - self._time_ns(steady_ns)) // 1_000_000

    def not_before(self, time_ms: int) -> None:
        """Go on from ``time_ms`` at least: what was told before this process began is not taken back."""
        behind_ns = time_ms * 1_000_000 - self._offset_ns - self._ticked_ns
        self._offset_ns += max(behind_ns, 0)

    def tick(self) -> None:
        """The server is alive: what passed since the last tick beyond `MAX_STEP_NS` does not count."""
        now_ns = self._steady_ns()
        self._offset_ns -= max(now_ns - self._ticked_ns - MAX_STEP_NS, 0)
        self._ticked_ns = now_ns

    def _time_ns(self, steady_ns: int) -> int:
        """Our time when the steady clock shows ``steady_ns``."""
        return self._offset_ns + self._ticked_ns + min(steady_ns - self._ticked_ns, MAX_STEP_NS)
