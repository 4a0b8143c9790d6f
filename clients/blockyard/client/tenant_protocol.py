"""The calls about a pool's tenants: what each is promised, and what it has."""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.client.call import Call, reader
from blockyard.client.paths import check_pool_name, check_tenant_name, pool_path
from blockyard.client.reports import TenantList, TenantReport
from blockyard.client.wire import Form, Response, encode

_read_tenant = reader(TenantReport)
_read_tenant_list = reader(TenantList)


@dataclass(frozen=True, slots=True)
class TenantCalls:
    """Calls about the tenants of one pool.

    Attributes:
        name: The pool's.

    Raises InvalidRequest where no pool can have this name.
    """

    name: str

    def __post_init__(self) -> None:
        check_pool_name(self.name)

    def tenants(self) -> Call[Sequence[TenantReport]]:
        """The pool's tenants by name: those that have a lease or a quota. A tenant sees itself alone."""
        return Call(method="GET", path=pool_path(self.name, "tenants"), read=_read_tenants)

    def tenant(self, name: str) -> Call[TenantReport]:
        """One of them.

        Raises:
            InvalidRequest: The name cannot be.
            TenantNotFound: There is none of this name, or it is another's to see.
        """
        return Call(method="GET", path=self._tenant_path(name), read=_read_tenant)

    def set_quota(
        self, name: str, *, guaranteed_blocks: int = 0, max_blocks: int | None = None, weight: int = 1
    ) -> Call[TenantReport]:
        """Set what a tenant may count on, and how far it may go; what is left out becomes its default.

        What it holds already stays its own, be it more than ``max_blocks``.

        Args:
            name: The tenant's: letters, digits, ``.``, ``_`` and ``-``, a letter or digit first, at most 64.
            guaranteed_blocks: So many it can always hold, whatever the others do.
            max_blocks: More it never holds; None for no bound.
            weight: Its share, beside the others', of what comes free while several wait; at least 1.

        Raises:
            InvalidRequest: The name cannot be; or the pool cannot keep that, beside the others' guarantees.
            Forbidden: The caller is no admin.
        """
        quota = {"guaranteed_blocks": guaranteed_blocks, "max_blocks": max_blocks, "weight": weight}
        return Call(
            method="PUT",
            path=self._tenant_path(name),
            read=_read_tenant,
            body=encode(quota, Form.JSON),
        )

    def remove_quota(self, name: str) -> Call[TenantReport]:
        """Take a tenant's quota back: it may count on nothing, and hold whatever is free.

        Raises:
            InvalidRequest: The name cannot be.
            Forbidden: The caller is no admin.
        """
        return Call(method="DELETE", path=self._tenant_path(name), read=_read_tenant)

    def _tenant_path(self, tenant: str) -> str:
        return pool_path(self.name, "tenants", check_tenant_name(tenant))


def _read_tenants(response: Response) -> Sequence[TenantReport]:
    return _read_tenant_list(response).tenants
