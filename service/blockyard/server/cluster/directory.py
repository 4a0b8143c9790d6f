"""Where the pools of a cluster are, as far as one node knows: for whoever looks for one, and as a report."""

from typing import NamedTuple

from blockyard.core.errors import BlockyardError, PoolNotFound
from blockyard.server.cluster.lease import boot_time_ns
from blockyard.server.cluster.node import ClusterNode
from blockyard.server.cluster.refusals import moving, no_maker
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.cluster.report import ClusterPoolReport, ClusterReport, NodeReport, Role
from blockyard.server.cluster.stage import Stage
from blockyard.server.cluster.surroundings import Surroundings


class Owner(NamedTuple):
    """The node that answers for a pool; ``ownership`` is 0 where it is to be made there."""

    node: str
    url: str
    ownership: int


class Directory:
    """Knows where a pool is, by what ``node`` knows."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def absent(self, pool: str) -> BlockyardError:
        """What is said of a pool that this node does not answer for."""
        around = self._node.around
        known = around is not None and around.registry.find(pool) is not None
        return moving() if known or not self._node.lease.holds else PoolNotFound.of(pool)

    async def owner(self, pool: str) -> Owner | None:
        """Who owns the pool of this name; None where there is no such pool.

        Raises:
            NotReady: Nobody does now, or this node cannot tell.
            TimeoutError, nats.errors.Error: NATS does not answer.
        """
        around = self._node.around
        if around is None or not self._node.lease.holds:
            raise moving()
        known = around.registry.find(pool) or await around.registry.look(pool)
        if known is None:
            return None
        url = around.members.url_of(known.node)
        if url is None or known.node == self._node.settings.node:
            raise moving()
        return Owner(known.node, url, known.ownership)

    def maker(self, pool: str) -> Owner | None:
        """The other node that is to make a pool of this name; None where this one is. Raises NotReady."""
        around = self._node.around
        order = [] if around is None else around.members.order(pool)
        if around is None or not order:
            raise no_maker()
        if order[0] == self._node.settings.node:
            return None
        url = around.members.url_of(order[0])
        if url is None:
            raise moving()
        return Owner(order[0], url, 0)

    def report(self) -> ClusterReport:
        """The cluster, as the node knows it now."""
        node, around = self._node, self._node.around
        return ClusterReport(
            cluster=node.settings.cluster,
            node=node.settings.node,
            is_connected=node.is_connected,
            lease_left_ms=node.lease.left_ms,
            nodes=[] if around is None else _nodes(around),
            pools=[] if around is None else [self._pool(around, pool) for pool in around.registry],
        )

    def _pool(self, around: Surroundings, pool: RegisteredPool) -> ClusterPoolReport:
        roles = self._node.roles
        role = roles.get(pool.name)
        part: Role = "none"
        if role is not None:
            part = "owner" if role.stage is Stage.OWNING else "standby"
        owner = self._node.settings.node if part == "owner" else pool.node
        url = around.members.url_of(owner)
        return ClusterPoolReport(
            pool=pool.name,
            node=None if url is None else owner,
            url=url,
            ownership=max(pool.ownership, 0 if role is None else role.ownership),
            standby=roles.placement(pool, around.members.order(pool.name)).standby,
            role=part,
            lag=None if role is None else role.lag,
        )


def _nodes(around: Surroundings) -> list[NodeReport]:
    now_ns = boot_time_ns()
    return [
        NodeReport(
            node=member.name,
            url=member.word.url,
            is_live=member.name in around.members.live,
            is_leaving=member.word.is_leaving,
            num_owned_pools=member.word.num_owned,
            num_followed_pools=member.word.num_followed,
            heard_ms_ago=(now_ns - member.heard_ns) // 1_000_000,
        )
        for member in sorted(around.members, key=lambda member: member.name)
        if member.word is not None
    ]
