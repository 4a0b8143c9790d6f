"""What each route asks of whoever calls it: one table, by method and path template.

A route without a rule keeps the application from being made.
"""

from dataclasses import dataclass

from blockyard.core.errors import Forbidden, PoolNotFound
from blockyard.server.access.principal import Principal, Scope
from blockyard.server.dashboard import ASSETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a route asks.

    Attributes:
        scope: That the caller needs; None: the route is open, and shows nothing of any pool.
        sees_all: Whether the route shows what all tenants do: then the caller may not be one of them.
        makes_pool: Whether the pool that it names need not exist: then one out of reach is no secret.
    """

    scope: Scope | None
    sees_all: bool = False
    makes_pool: bool = False

    def check(self, principal: Principal, pool: str | None) -> None:
        """Let ``principal`` pass.

        Args:
            principal: Who asks.
            pool: Name of the pool that is asked for; None for none.

        Raises:
            Forbidden: It lacks the scope, or may not see what others do, or not make such a pool.
            PoolNotFound: It may not know of the pool.
        """
        if self.scope is None:
            return
        if not principal.may(self.scope):
            raise Forbidden(f"this takes a token with the scope {self.scope}")
        if pool is not None and not principal.reaches(pool):
            if self.makes_pool:
                raise Forbidden(f"this token is not for pools of the name {pool!r}")
            raise PoolNotFound.of(pool)
        if self.sees_all and not principal.sees_all:
            raise Forbidden(
                "this shows what all tenants do: it takes a token without a tenant, or of an admin"
            )


OPEN = Rule(scope=None)
READ = Rule(scope=Scope.READ)
READ_ALL = Rule(scope=Scope.READ, sees_all=True)
ALLOCATE = Rule(scope=Scope.ALLOCATE)
WORK = Rule(scope=Scope.WORK)
ADMIN = Rule(scope=Scope.ADMIN)
MAKE_POOL = Rule(scope=Scope.ADMIN, makes_pool=True)

POOL = "/v1/pools/{pool}"

RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/oauth2-redirect"): OPEN,
    ("GET", "/static-offline-docs/{path}"): OPEN,
    **{("GET", asset.path): OPEN for asset in ASSETS},
    ("GET", "/dashboard/charts.json"): OPEN,
    ("GET", "/dashboard/cluster.json"): OPEN,
    ("GET", "/dashboard/plotly.js"): OPEN,
    ("GET", "/metrics"): READ_ALL,
    ("GET", "/v1/watch"): READ_ALL,
    ("GET", "/v1/cluster"): READ,
    ("POST", "/v1/hash"): READ,
    ("POST", "/v1/plans"): READ,
    ("GET", "/v1/pools"): READ,
    ("PUT", POOL): MAKE_POOL,
    ("GET", POOL): READ,
    ("DELETE", POOL): ADMIN,
    ("GET", f"{POOL}/stats"): READ,
    ("GET", f"{POOL}/plan"): READ,
    ("GET", f"{POOL}/sequences/{{sequence_id}}"): READ,
    ("GET", f"{POOL}/audit"): READ_ALL,
    ("GET", f"{POOL}/map"): READ_ALL,
    ("GET", f"{POOL}/events"): READ_ALL,
    ("GET", f"{POOL}/events/snapshot"): READ_ALL,
    ("POST", f"{POOL}/lookup"): READ,
    ("POST", f"{POOL}/prefixes"): READ,
    ("GET", f"{POOL}/pins"): READ,
    ("POST", f"{POOL}/pins"): ALLOCATE,
    ("POST", f"{POOL}/pins/{{pin_id}}/renew"): ALLOCATE,
    ("DELETE", f"{POOL}/pins/{{pin_id}}"): ALLOCATE,
    ("POST", f"{POOL}/step"): ALLOCATE,
    ("POST", f"{POOL}/allocate"): ALLOCATE,
    ("POST", f"{POOL}/commit"): ALLOCATE,
    ("POST", f"{POOL}/fork"): ALLOCATE,
    ("POST", f"{POOL}/free"): ALLOCATE,
    ("POST", f"{POOL}/leases"): ALLOCATE,
    ("POST", f"{POOL}/leases/{{lease_id}}/renew"): ALLOCATE,
    ("DELETE", f"{POOL}/leases/{{lease_id}}"): ALLOCATE,
    ("POST", f"{POOL}/blocks/allocate"): ALLOCATE,
    ("POST", f"{POOL}/blocks/free"): ALLOCATE,
    ("POST", f"{POOL}/reset_prefix_cache"): ADMIN,
    ("GET", f"{POOL}/tenants"): READ,
    ("GET", f"{POOL}/tenants/{{tenant}}"): READ,
    ("PUT", f"{POOL}/tenants/{{tenant}}"): ADMIN,
    ("DELETE", f"{POOL}/tenants/{{tenant}}"): ADMIN,
    ("GET", f"{POOL}/workers"): READ,
    ("POST", f"{POOL}/workers"): WORK,
    ("POST", f"{POOL}/workers/{{worker_id}}/heartbeat"): WORK,
    ("DELETE", f"{POOL}/workers/{{worker_id}}"): WORK,
}
"""Every route of the application; HEAD goes by GET."""


class NoRule(LookupError):
    """A route has no rule: nobody has said who may call it."""


def rule_of(method: str, template: str) -> Rule:
    """The rule of the route with this path template.

    Raises:
        NoRule: There is none.
    """
    rule = RULES.get(("GET" if method == "HEAD" else method, template))
    if rule is None:
        raise NoRule(f"{method} {template} has no rule: say in blockyard.server.access.rules who may call it")
    return rule


_OPEN_PATHS = frozenset(
    template for (_, template), rule in RULES.items() if rule is OPEN and "{" not in template
)
_OPEN_FOLDERS = tuple(
    template.partition("{")[0] for (_, template), rule in RULES.items() if rule is OPEN and "{" in template
)


def is_open(path: str) -> bool:
    """Whether ``path`` is an open route's: then who asks need not be known."""
    return path in _OPEN_PATHS or path.startswith(_OPEN_FOLDERS)
