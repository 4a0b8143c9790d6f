"""How long a lease still stands, as its holder can know it. No thread, no clock: times are given."""

from blockyard.core.errors import LeaseExpired
from blockyard.core.ids import LeaseId

RENEWALS_PER_TTL = 3
"""A lease is renewed this often within its time, so that two renewals may fail."""


class LeaseState:
    """A lease that was granted at ``now_s``.

    Args:
        lease_id: The lease's.
        ttl_ms: How long it stands unless renewed.
        now_s: When the call that created it was sent, on a steady clock: the server counts from later on.
    """

    __slots__ = ("_ended", "_renewed_s", "lease_id", "ttl_s")

    def __init__(self, lease_id: LeaseId, ttl_ms: int, now_s: float) -> None:
        self.lease_id = lease_id
        self.ttl_s = ttl_ms / 1000
        self._renewed_s = now_s
        self._ended: LeaseExpired | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the lease has ended: expired, or released."""
        return self._ended is not None

    def check(self) -> None:
        """Refuse, without asking the server, what is asked under a lease that has ended.

        Raises:
            LeaseExpired: It has ended.
        """
        if self._ended is not None:
            raise LeaseExpired(self._ended.detail, self._ended.figures)

    def renewed(self, now_s: float) -> None:
        """A call that carried the lease was sent at ``now_s`` and answered."""
        self._renewed_s = max(self._renewed_s, now_s)

    def ended(self, error: LeaseExpired | None = None) -> None:
        """The lease holds nothing any more. ``error`` is how the server said so; None after a release."""
        self._ended = error or LeaseExpired.of(self.lease_id)

    def renewal_in_s(self, now_s: float) -> float:
        """Seconds until the lease should be renewed; 0 if now."""
        return max(0.0, self._renewed_s + self.ttl_s / RENEWALS_PER_TTL - now_s)

    @property
    def pause_after_failure_s(self) -> float:
        """Seconds between renewals that do not arrive."""
        return self.ttl_s / 10
