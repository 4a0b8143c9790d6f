"""How many leases, sequences and pins a tenant may have in a pool: checked before the pool is asked."""

from dataclasses import dataclass

from blockyard.core.commands import Allocate, Command, CreateLease, CreatePin, Fork, Step, unkeyed
from blockyard.core.errors import LimitExceeded
from blockyard.core.pool import Pool


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Of each tenant in each pool. What it has already stays its own, whatever the limits are now."""

    max_leases: int
    max_sequences: int
    max_pins: int
    max_pinned_hashes: int

    def check(self, pool: Pool, command: Command) -> None:
        """Refuse what would be one too many; what was done before is no new one.

        Raises:
            LimitExceeded: It would.
        """
        asked = unkeyed(command)
        if isinstance(asked, CreatePin):
            if not pool.remembers(command):
                self._check_pin(pool, asked)
            return
        tenant = pool.tenants.find(asked.tenant)
        if tenant is None:
            return
        if isinstance(asked, CreateLease):
            if tenant.num_leases >= self.max_leases and not pool.remembers(command):
                raise LimitExceeded.of(
                    "max_leases_per_tenant",
                    self.max_leases,
                    f"the tenant has {tenant.num_leases} leases: end one first",
                )
            return
        num_sequences = tenant.num_sequences
        if isinstance(asked, Allocate):
            is_new = pool.sequences.get(asked.tenant, asked.admission.sequence_id) is None
            num_sequences += is_new
        elif isinstance(asked, Fork):
            num_sequences += len(asked.new_sequence_ids)
        elif isinstance(asked, Step) and asked.admit:
            num_sequences += len(asked.admit) - len(asked.free)
        else:
            return
        if num_sequences > max(self.max_sequences, tenant.num_sequences) and not pool.remembers(command):
            raise LimitExceeded.of(
                "max_sequences_per_tenant",
                self.max_sequences,
                f"the tenant has {tenant.num_sequences} sequences: free some first",
            )

    def _check_pin(self, pool: Pool, asked: CreatePin) -> None:
        """Refuse a pin that would be one too many, or whose hashes would be."""
        tenant = pool.tenants.find(asked.tenant)
        num_pins = 0 if tenant is None else tenant.num_pins
        num_hashes = 0 if tenant is None else tenant.num_pinned_hashes
        if num_pins >= self.max_pins:
            raise LimitExceeded.of(
                "max_pins_per_tenant", self.max_pins, f"the tenant has {num_pins} pins: end one first"
            )
        if not asked.hard:
            num_hashes += max(len(asked.block_hashes), len(asked.token_ids) // pool.config.hash_block_size)
            if num_hashes > self.max_pinned_hashes:
                raise LimitExceeded.of(
                    "max_pinned_hashes_per_tenant",
                    self.max_pinned_hashes,
                    f"the tenant's soft pins would go by {num_hashes} hashes: end one first, or pin less",
                )
