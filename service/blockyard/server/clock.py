"""The time that commands are given: the wall clock when the process began, moved on by the steady clock.

A wall clock that is set while the server runs neither ends nor prolongs a lease.
"""

import time


class Clock:
    """Milliseconds since 1970 that never go back."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """The time in whole milliseconds."""
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
