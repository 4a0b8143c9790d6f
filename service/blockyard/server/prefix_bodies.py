"""The body of the call that asks which of many prefixes are cached."""

from typing import Annotated

from pydantic import Field

from blockyard.core.content import Told
from blockyard.core.ids import TenantId
from blockyard.server.body import PositiveCount
from blockyard.server.schemas import ContentBody, PoolBody
from blockyard.server.settings import MAX_PREFIXES


class PrefixBody(ContentBody):
    """A prefix."""

    num_tokens: PositiveCount | None = Field(
        None, description="Only its first ones count; default: all that are told."
    )

    def told(self, tenant: TenantId) -> Told:
        """The same for the core, as ``tenant`` tells it."""
        return Told(
            self.block_hashes,
            self.token_ids,
            extras=self.extras(),
            tenant=tenant,
            tenant_only=self.tenant_only,
        )


class PrefixesBody(PoolBody):
    """Prefixes to look for."""

    prefixes: Annotated[list[PrefixBody], Field(max_length=MAX_PREFIXES, fail_fast=True)]

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        return sum(prefix.num_hashes for prefix in self.prefixes)
