"""When to try again, and after which pause: decided here, without a clock or a socket.

Pauses grow exponentially and are drawn with full jitter: uniformly between zero and the bound, so that
clients which failed together do not return together. Only a kept connection that its server had closed is
replaced at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

from blockyard.client.errors import NothingArrived, is_passing
from blockyard.core.errors import BlockyardError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounds of the tries that one call makes.

    Attributes:
        max_attempts: Tries in all, at least 1; 1 means never again; None: as many as there is time for.
        first_pause_s: Bound of the first pause; it doubles from try to try.
        max_pause_s: Bound of any drawn pause. What a server asks for (``retry_after_ms``) comes on top.
        max_total_s: No try starts later than this after the first, beside what a call may wait at the server.
    """

    max_attempts: int | None = 6
    first_pause_s: float = 0.05
    max_pause_s: float = 2.0
    max_total_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse bounds that allow no try at all.

        Raises:
            ValueError: A bound is out of range.
        """
        is_none = self.max_attempts is not None and self.max_attempts < 1
        if is_none or min(self.first_pause_s, self.max_pause_s, self.max_total_s) < 0:
            raise ValueError("max_attempts is at least 1, and no time is negative")

    def allows(self, num_tries: int) -> bool:
        """Whether there may be so many."""
        return self.max_attempts is None or num_tries <= self.max_attempts


NO_RETRY = RetryPolicy(max_attempts=1)
"""One try."""

ALONE = RetryPolicy()
"""At a single server."""

IN_CLUSTER = RetryPolicy(max_attempts=None, max_pause_s=0.5)
"""At several nodes: another one takes a pool over within seconds, and no call is to fail for that."""

_MAX_DOUBLINGS = 64
"""More would be centuries, and soon no number."""


class Attempts:
    """The tries of one call.

    Args:
        policy: Their bounds.
        now_s: When the first try starts, on any steady clock.
        wait_s: How long it may wait at the server.
    """

    __slots__ = ("_last_s", "_num_failed", "_policy")

    def __init__(self, policy: RetryPolicy, now_s: float, wait_s: float = 0.0) -> None:
        self._policy = policy
        self._last_s = now_s + policy.max_total_s + wait_s
        self._num_failed = 0

    def pause_s(self, error: BlockyardError, now_s: float, draw: Callable[[], float]) -> float | None:
        """How long to wait before the next try, after ``error`` ended this one.

        Args:
            error: Why the try failed.
            now_s: The time, on the clock of the first.
            draw: Gives a number from 0 to 1.

        Returns:
            Seconds, or None: do not try again.
        """
        self._num_failed += 1
        if not is_passing(error) or not self._policy.allows(self._num_failed + 1):
            return None
        if self._num_failed == 1 and isinstance(error, NothingArrived):
            return 0.0
        doubled = 2.0 ** min(self._num_failed - 1, _MAX_DOUBLINGS)
        bound = min(self._policy.first_pause_s * doubled, self._policy.max_pause_s)
        pause = _asked_s(error) + draw() * bound
        return pause if now_s + pause <= self._last_s else None


def _asked_s(error: BlockyardError) -> float:
    asked_ms = error.figures.get("retry_after_ms")
    return max(asked_ms, 0) / 1000 if isinstance(asked_ms, (int, float)) else 0.0
