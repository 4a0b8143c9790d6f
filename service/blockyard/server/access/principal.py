"""Who a request comes from, and what they may do."""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from blockyard.core.ids import NO_TENANT, TenantId

PRINCIPAL_KEY = "blockyard.principal"
"""Where a request's ASGI scope has its `Principal`."""


class Scope(StrEnum):
    """What a token is for."""

    READ = "read"
    """Look at pools, hash, plan."""
    ALLOCATE = "allocate"
    """Hold blocks: what a scheduler does. Implies read."""
    WORK = "work"
    """Be a worker. Implies read."""
    ADMIN = "admin"
    """Make and delete pools, and everything else, whatever the tenant."""


ALL_POOLS = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The bearer of a token, or everyone where there are no tokens.

    Attributes:
        tenant: Whose leases are its own; `NO_TENANT` for none: an operator's.
        scopes: What it may do.
        pools: Patterns of the names of those pools that it may know of, as of `fnmatch`, in one case.
        token_id: Of its token; empty where it has none.
    """

    tenant: TenantId = NO_TENANT
    scopes: frozenset[Scope] = frozenset()
    pools: tuple[str, ...] = ()
    token_id: str = ""

    def may(self, scope: Scope) -> bool:
        """Whether it has ``scope``, or one that implies it."""
        if scope in self.scopes or Scope.ADMIN in self.scopes:
            return True
        return scope is Scope.READ and bool(self.scopes)

    @property
    def sees_all(self) -> bool:
        """Whether it may see what all tenants do."""
        return not self.tenant or Scope.ADMIN in self.scopes

    def reaches(self, pool: str) -> bool:
        """Whether it may know of the pool of this name."""
        return self.pools == ALL_POOLS or any(fnmatchcase(pool, pattern) for pattern in self.pools)


ANYONE = Principal(scopes=frozenset({Scope.ADMIN}), pools=ALL_POOLS)
"""Everyone, at a server without tokens."""

NOBODY = Principal()
"""Who has shown no token, on a route that asks for none."""
