"""The leases of a pool: who may hold something of it, and until when."""

from collections.abc import Iterator, Mapping

from blockyard.core.commands import LeaseCommand
from blockyard.core.errors import LeaseExpired
from blockyard.core.ids import LeaseId
from blockyard.core.lease import Lease


class Leases(Mapping[LeaseId, Lease]):
    """All that have not ended, by their ids, in the order of their making; none at first.

    One that has run out is among them until it is ended: nobody acts under it meanwhile.

    Attributes:
        next_expiry_ms: A lower bound: none runs out before this time. None where there was none to run out.
    """

    def __init__(self) -> None:
        self._by_id: dict[LeaseId, Lease] = {}
        self.next_expiry_ms: int | None = None

    def __getitem__(self, lease_id: LeaseId) -> Lease:
        return self._by_id[lease_id]

    def __iter__(self) -> Iterator[LeaseId]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, lease: Lease) -> None:
        """Have one more, whose id is new."""
        assert lease.lease_id not in self._by_id, f"there is a lease {lease.lease_id!r}"
        self._by_id[lease.lease_id] = lease
        lease.tenant.num_leases += 1
        if self.next_expiry_ms is None or lease.expires_at_ms < self.next_expiry_ms:
            self.next_expiry_ms = lease.expires_at_ms

    def remove(self, lease: Lease) -> None:
        """``lease``, which is one of them and holds nothing any more, has ended."""
        del self._by_id[lease.lease_id]
        lease.tenant.num_leases -= 1

    def renew(self, command: LeaseCommand, now_ms: int) -> Lease:
        """The lease that ``command`` comes under, whose time begins anew.

        Raises:
            LeaseExpired: There is none of this id, it is another tenant's, or it has run out.
        """
        lease = self._by_id.get(command.lease_id)
        if lease is None or lease.tenant.name != command.tenant or lease.expires_at_ms <= now_ms:
            raise LeaseExpired.of(command.lease_id)
        lease.expires_at_ms = now_ms + lease.ttl_ms
        return lease

    def run_out(self, now_ms: int) -> list[Lease]:
        """Those that are to be ended now, the one that ran out first at the front."""
        run_out = [lease for lease in self._by_id.values() if lease.expires_at_ms <= now_ms]
        going_on = (lease.expires_at_ms for lease in self._by_id.values() if lease.expires_at_ms > now_ms)
        self.next_expiry_ms = min(going_on, default=None)
        return sorted(run_out, key=lambda lease: (lease.expires_at_ms, lease.lease_id))

    def resume(self, since_ms: int, now_ms: int) -> int:
        """Give those their time anew that had some left at ``since_ms``; returns how many."""
        standing = [lease for lease in self._by_id.values() if lease.expires_at_ms > since_ms]
        for lease in standing:
            lease.expires_at_ms = max(lease.expires_at_ms, now_ms + lease.ttl_ms)
        return len(standing)
