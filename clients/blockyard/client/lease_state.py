"""How long a lease surely stands, as its holder can know it. No thread, no clock: times are given.

The server counts a lease's time from when it does a call that carries it; its holder knows only when it sent
the call. So what the holder counts ends first:

    sent                 done by the server, answered
    |---------- ttl: surely stands ----------|
                  |---------- ttl at the server ----------|
"""

from blockyard.core.errors import BlockyardError, LeaseExpired, StaleEpoch
from blockyard.core.replies import LeaseGranted

RENEWALS_PER_TTL = 3
"""A lease is renewed this often within its time, and a renewal waits for its reply as long as that share."""


class LeaseState:
    """A lease that was granted. Once it has ended it never stands again.

    Args:
        granted: What the server said.
        sent_s: When the call that created it was first sent, on a steady clock, as all times here are.
    """

    __slots__ = ("_ended", "_renewed_s", "is_released", "lease_id", "ttl_s")

    def __init__(self, granted: LeaseGranted, sent_s: float) -> None:
        self.lease_id = granted.lease_id
        self.ttl_s = granted.ttl_ms / 1000
        self.is_released = False
        self._renewed_s = sent_s
        self._ended: BlockyardError | None = None

    @property
    def holds_nothing(self) -> bool:
        """Whether the server has said so. One of an earlier epoch has ended, and still holds its blocks."""
        return self._ended is not None and not isinstance(self._ended, StaleEpoch)

    def has_ended(self, now_s: float) -> bool:
        """Whether it has ended: released, expired, or perhaps expired since nobody has renewed it in time."""
        return self._ended is not None or now_s >= self._renewed_s + self.ttl_s

    def check(self, now_s: float) -> None:
        """Refuse, without asking the server, what is asked under a lease that has ended.

        Raises:
            LeaseExpired, PoolNotFound, StaleEpoch: It has ended.
        """
        if self._ended is not None:
            raise self._ended.again()
        if self.has_ended(now_s):
            raise LeaseExpired(
                f"lease {self.lease_id!r} was not renewed within its {self.ttl_s:g} s, so its blocks may be "
                "another's by now: create a new one, start your sequences again"
            )

    def note_renewed(self, sent_s: float, now_s: float) -> None:
        """A call that carried the lease was first sent at ``sent_s`` and is answered now."""
        if not self.has_ended(now_s):
            self._renewed_s = max(self._renewed_s, sent_s)

    def note_ended(self, error: BlockyardError) -> None:
        """The server has refused a call with ``error``: the lease, its epoch or its pool has ended."""
        self._ended = error

    def note_released(self) -> None:
        """Its holder has given it back."""
        self.is_released = True
        self._ended = LeaseExpired.of(self.lease_id)

    def renewal_in_s(self, now_s: float) -> float:
        """Seconds until the lease should be renewed; 0 if now."""
        return max(0.0, self._renewed_s + self.renewal_timeout_s - now_s)

    @property
    def renewal_timeout_s(self) -> float:
        """Seconds that one renewal may take: one that hangs leaves time for the next."""
        return self.ttl_s / RENEWALS_PER_TTL

    @property
    def pause_after_failure_s(self) -> float:
        """Seconds from one renewal that fails to the next."""
        return self.ttl_s / 10
