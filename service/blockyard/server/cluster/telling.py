"""What a node tells of its cluster: who owns a pool, and the report of all."""

from typing import NamedTuple

from blockyard.core.errors import BlockyardError, NotReady, PoolNotFound
from blockyard.server.cluster.journal import moving
from blockyard.server.cluster.lease import boot_time_ns
from blockyard.server.cluster.node import ClusterNode, Joined
from blockyard.server.cluster.pool_role import Stage
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.cluster.report import ClusterPoolReport, ClusterReport, NodeReport, Role

RETRY_AFTER_MS = 100


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
        joined = self._node.joined
        known = joined is not None and joined.registry.find(pool) is not None
        return moving() if known or not self._node.lease.holds else PoolNotFound.of(pool)

    async def owner(self, pool: str) -> Owner | None:
        """Who owns the pool of this name; None where there is no such pool.

        Raises:
            NotReady: Nobody does now, or this node cannot tell.
            TimeoutError, nats.errors.Error: NATS does not answer.
        """
        joined = self._node.joined
        if joined is None or not self._node.lease.holds:
            raise moving()
        known = joined.registry.find(pool) or await joined.registry.look(pool)
        if known is None:
            return None
        url = joined.members.url_of(known.node)
        if url is None or known.node == self._node.settings.node:
            raise moving()
        return Owner(known.node, url, known.ownership)

    def maker(self, pool: str) -> Owner | None:
        """The other node that is to make a pool of this name; None where this one is. Raises NotReady."""
        joined, order = self._node.joined, self._node.order(pool)
        if joined is None or not order:
            raise NotReady("no node makes pools now: try again", {"retry_after_ms": RETRY_AFTER_MS})
        if order[0] == self._node.settings.node:
            return None
        url = joined.members.url_of(order[0])
        if url is None:
            raise moving()
        return Owner(order[0], url, 0)

    def report(self) -> ClusterReport:
        """The cluster, as the node knows it now."""
        node, joined = self._node, self._node.joined
        return ClusterReport(
            cluster=node.settings.cluster,
            node=node.settings.node,
            is_connected=node.is_connected,
            lease_left_ms=node.lease.left_ms,
            nodes=[] if joined is None else _nodes(joined),
            pools=[] if joined is None else [self._pool(joined, pool) for pool in joined.registry],
        )

    def _pool(self, joined: Joined, pool: RegisteredPool) -> ClusterPoolReport:
        role = self._node.roles.get(pool.name)
        part: Role = "none"
        if role is not None:
            part = "owner" if role.stage is Stage.OWNING else "standby"
        owner = self._node.settings.node if part == "owner" else pool.node
        url = joined.members.url_of(owner)
        return ClusterPoolReport(
            pool=pool.name,
            node=None if url is None else owner,
            url=url,
            ownership=max(pool.ownership, 0 if role is None else role.ownership),
            standby=self._node.standby(pool),
            role=part,
            lag=None if role is None else role.lag,
        )


def _nodes(joined: Joined) -> list[NodeReport]:
    now_ns = boot_time_ns()
    return [
        NodeReport(
            node=member.name,
            url=member.word.url,
            is_live=member.name in joined.members.live,
            is_leaving=member.word.is_leaving,
            num_owned_pools=member.word.num_owned,
            num_followed_pools=member.word.num_followed,
            heard_ms_ago=(now_ns - member.heard_ns) // 1_000_000,
        )
        for member in sorted(joined.members, key=lambda member: member.name)
        if member.word is not None
    ]
