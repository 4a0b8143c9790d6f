"""The pools that this server owns, by name."""

from collections.abc import Iterator

from blockyard.core.commands import ExpireLeases
from blockyard.core.config import PoolConfig
from blockyard.core.errors import InvalidRequest, PlanNotFound, PoolExists, PoolInUse, PoolNotFound
from blockyard.core.pool import Pool
from blockyard.core.replies import LeasesExpired
from blockyard.planning.planner import Plan


class Pools:
    """None at first, ``max_pools`` at most, each of ``max_pool_blocks`` at most."""

    def __init__(self, max_pools: int, max_pool_blocks: int) -> None:
        self._max_pools = max_pools
        self._max_pool_blocks = max_pool_blocks
        self._pools: dict[str, Pool] = {}
        self._plans: dict[str, Plan] = {}

    def __iter__(self) -> Iterator[tuple[str, Pool]]:
        return iter(self._pools.items())

    def get(self, name: str) -> Pool:
        """The pool of this name.

        Raises:
            PoolNotFound: There is none.
        """
        pool = self._pools.get(name)
        if pool is None:
            raise PoolNotFound(f"there is no pool {name!r}: GET /v1/pools lists those there are")
        return pool

    def plan(self, name: str) -> Plan:
        """The plan that the pool of this name was made from.

        Raises:
            PoolNotFound: There is no such pool.
            PlanNotFound: It was made from sizes.
        """
        plan = self.plan_if_any(name)
        if plan is None:
            raise PlanNotFound(f"pool {name!r} was made from sizes, not from a plan")
        return plan

    def plan_if_any(self, name: str) -> Plan | None:
        """The same, or None.

        Raises:
            PoolNotFound: There is no such pool.
        """
        self.get(name)
        return self._plans.get(name)

    def create(self, name: str, config: PoolConfig, plan: Plan | None = None) -> tuple[Pool, bool]:
        """The pool of this name and configuration, and whether it is new.

        Args:
            name: Not checked.
            config: Sizes and options.
            plan: What they follow from, if they do.

        Raises:
            PoolExists: It stands with another configuration or plan.
            InvalidRequest: It would be too large, or one too many, or its sizes are wrong.
        """
        known = self._pools.get(name)
        if known is not None:
            if known.config != config or self._plans.get(name) != plan:
                raise PoolExists(
                    f"pool {name!r} has another configuration: delete it first, or choose another name"
                )
            return known, False
        if config.num_blocks > self._max_pool_blocks:
            raise InvalidRequest.of(
                "num_blocks",
                f"this server makes pools of at most {self._max_pool_blocks} blocks (--max-pool-blocks)",
            )
        if len(self._pools) >= self._max_pools:
            raise InvalidRequest.of(
                "pool", f"this server owns {self._max_pools} pools already (--max-pools): delete one first"
            )
        pool = self._pools[name] = Pool(config)
        if plan is not None:
            self._plans[name] = plan
        return pool, True

    def delete(self, name: str, *, force: bool) -> Pool:
        """Take the pool of this name away; with ``force``, whatever is held.

        Raises:
            PoolNotFound: There is none.
            PoolInUse: Blocks of it are held.
        """
        pool = self.get(name)
        num_held = pool.num_held_blocks
        if num_held and not force:
            raise PoolInUse(
                f"{num_held} blocks of pool {name!r} are held: free them, or delete with ?force=true"
            )
        self._plans.pop(name, None)
        return self._pools.pop(name)

    def expire(self, now_ms: int) -> list[tuple[str, LeasesExpired]]:
        """End every lease that has run out; the pools concerned, and what came back."""
        expired = []
        for name, pool in self._pools.items():
            if pool.next_expiry_ms is not None and pool.next_expiry_ms <= now_ms:
                reply = pool.apply(ExpireLeases(), now_ms)
                assert isinstance(reply, LeasesExpired)
                if reply.lease_ids:
                    expired.append((name, reply))
        return expired
