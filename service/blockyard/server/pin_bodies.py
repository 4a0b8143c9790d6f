"""Bodies of the calls about pins."""

from pydantic import Field

from blockyard.core import commands as ask
from blockyard.core.ids import PinId, TenantId
from blockyard.server.schemas import ContentBody, PoolBody, TtlMs


class CreatePinBody(ContentBody, PoolBody):
    """A prefix to keep. Its full blocks count; it may be longer than what is cached of it."""

    ttl_ms: TtlMs
    hard: bool = Field(
        False,
        description="Hold its blocks, within the tenant's quota; all of them have to be cached now. Else "
        "blocks with these hashes, cached now or later, are evicted only when no other free block is left.",
    )

    def command(self, pin_id: PinId, tenant: TenantId) -> ask.CreatePin:
        """The command of ``tenant``, for a pin of a new id."""
        return ask.CreatePin(
            tenant=tenant,
            epoch=self.epoch,
            pin_id=pin_id,
            ttl_ms=self.ttl_ms,
            hard=self.hard,
            block_hashes=self.block_hashes,
            token_ids=self.token_ids,
            extras=self.extras(),
            tenant_only=self.tenant_only,
        )


class RenewPinBody(PoolBody):
    """A pin's time anew."""

    ttl_ms: TtlMs | None = Field(None, description="Its time from now on; default: as before.")
