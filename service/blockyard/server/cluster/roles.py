"""What a node is to pools, by their names."""

from collections.abc import Sequence

from blockyard.server.cluster.placement import Placement
from blockyard.server.cluster.pool_role import PoolRole
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.cluster.stage import Stage


class Roles(dict[str, PoolRole]):
    """Those of one node; none at first."""

    @property
    def num_owned(self) -> int:
        """Pools that others rely on this node for, also while it hands them over."""
        return sum(role.stage in (Stage.OWNING, Stage.LEAVING) for role in self.values())

    @property
    def num_followed(self) -> int:
        """Pools that it holds warm for others."""
        return sum(role.stage is Stage.FOLLOWING for role in self.values())

    def placement(self, pool: RegisteredPool, order: Sequence[str]) -> Placement:
        """Of a pool with these candidates; who owns it, its stream tells before the registry does."""
        role = self.get(pool.name)
        if role is None or role.stage is not Stage.FOLLOWING or role.followed is None:
            return Placement(order, pool.node)
        holder = role.followed.holder
        return Placement(order, None if holder is None else holder.node)

    def forget(self, role: PoolRole) -> None:
        """This node has that role no more; the pool's name may be another's by now."""
        if self.get(role.name) is role:
            del self[role.name]

    async def stop_all(self) -> None:
        """Be nothing to any."""
        stopped = list(self.values())
        self.clear()
        for role in stopped:
            await role.stop()
