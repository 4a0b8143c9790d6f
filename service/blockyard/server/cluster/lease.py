"""A node's lease: until when it may answer for its pools without having heard of the others.

    owner    heartbeat sent -----------------------| its lease is over
    others        heartbeat received ------------------|..| they hold it dead, and revoke it
                                                        slack: clocks do not run exactly alike

The clock goes on while a machine sleeps, and is not set by anybody.
"""

import time
from collections.abc import Callable

SLACK = 1.05
"""So many times the lease is waited for by others."""


def boot_time_ns() -> int:
    """Nanoseconds since the machine began; also those that it, or the process, was suspended for."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Lease:
    """Over at first.

    Args:
        duration_ms: From when a heartbeat that was stored had been sent.
        now_ns: The clock.
    """

    __slots__ = ("_now_ns", "_until_ns", "duration_ms")

    def __init__(self, duration_ms: int, now_ns: Callable[[], int] = boot_time_ns) -> None:
        self.duration_ms = duration_ms
        self._now_ns = now_ns
        self._until_ns = 0

    def renew(self, sent_ns: int) -> None:
        """A heartbeat that was sent then has been stored."""
        self._until_ns = max(self._until_ns, sent_ns + self.duration_ms * 1_000_000)

    def end(self) -> None:
        """It is over, whatever the clock says: another has revoked it, or its node gives it up."""
        self._until_ns = 0

    @property
    def holds(self) -> bool:
        """Whether it is not over."""
        return self._now_ns() < self._until_ns

    @property
    def left_ms(self) -> int:
        """How long it goes on; 0 where it is over."""
        return max(0, self._until_ns - self._now_ns()) // 1_000_000
