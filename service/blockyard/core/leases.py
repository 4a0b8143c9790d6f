"""The leases of a pool: who may hold something of it, and until when."""

from blockyard.core.commands import LeaseCommand
from blockyard.core.errors import LeaseExpired
from blockyard.core.expiring import Expiring
from blockyard.core.ids import LeaseId
from blockyard.core.lease import Lease


class Leases(Expiring[LeaseId, Lease]):
    """The leases that have not ended."""

    def add(self, lease: Lease) -> None:
        """Have one more, whose id is new."""
        assert lease.lease_id not in self._by_id, f"there is a lease {lease.lease_id!r}"
        self._by_id[lease.lease_id] = lease
        lease.tenant.num_leases += 1
        self._note_expiry(lease)

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
