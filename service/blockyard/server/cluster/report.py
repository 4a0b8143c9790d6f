"""What a node knows of its cluster: `GET /v1/cluster` and the metrics are made of it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from blockyard.server.access.principal import ALL_POOLS, Principal

Role = Literal["owner", "standby", "none"]
"""What a node is to a pool: it answers for it, follows it, or neither."""


class NodeReport(BaseModel):
    """A node of the cluster, as the one that is asked knows it."""

    model_config = ConfigDict(frozen=True)

    node: str = Field(description="Its name.")
    url: str = Field(description="Where others reach it.")
    is_live: bool = Field(description="Its lease has not run out.")
    is_leaving: bool = Field(description="It hands its pools over, and stops then.")
    num_owned_pools: int
    num_followed_pools: int = Field(description="Pools that it holds warm, to take them over.")
    heard_ms_ago: int = Field(description="Since its last sign of life.")


class ClusterPoolReport(BaseModel):
    """A pool of the cluster, wherever it is."""

    model_config = ConfigDict(frozen=True)

    pool: str
    node: str | None = Field(description="Its owner; null while it has none.")
    url: str | None = Field(description="The owner's.")
    ownership: int = Field(description="Rises with every owner.")
    standby: str | None = Field(description="The node that takes it over; null for none.")
    role: Role = Field(description="Of the node that is asked: `owner`, `standby` or `none`.")
    lag: int | None = Field(
        description="Messages of the pool's stream that the node that is asked has not applied yet; null "
        "where it does not follow it."
    )


class ClusterReport(BaseModel):
    """The cluster as one node knows it at one moment."""

    model_config = ConfigDict(frozen=True)

    cluster: str = Field(description="Its name.")
    node: str = Field(description="The one that is asked.")
    is_connected: bool = Field(description="Whether it reaches NATS.")
    lease_left_ms: int = Field(description="How long it may go on answering for its pools; 0: it may not.")
    nodes: list[NodeReport]
    pools: list[ClusterPoolReport] = Field(description="Those that the caller may know of.")

    @property
    def num_live_nodes(self) -> int:
        """Nodes whose leases have not run out."""
        return sum(node.is_live for node in self.nodes)

    @property
    def max_lag(self) -> int:
        """The most messages that this node is behind with a pool that it follows."""
        return max((pool.lag or 0 for pool in self.pools if pool.role == "standby"), default=0)

    def num_pools(self, role: Role) -> int:
        """Pools that this node has ``role`` for."""
        return sum(pool.role == role for pool in self.pools)

    def reached_by(self, principal: Principal) -> "ClusterReport":
        """The same without the pools that ``principal`` may not know of: nodes do not count them either."""
        if principal.pools == ALL_POOLS:
            return self
        pools = [pool for pool in self.pools if principal.reaches(pool.pool)]
        nodes = [
            node.model_copy(
                update={
                    "num_owned_pools": sum(pool.node == node.node for pool in pools),
                    "num_followed_pools": sum(pool.standby == node.node for pool in pools),
                }
            )
            for node in self.nodes
        ]
        return self.model_copy(update={"nodes": nodes, "pools": pools})
