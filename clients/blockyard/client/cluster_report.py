"""What a node tells of its cluster."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node, as the one that answers knows it.

    Attributes:
        node: Its name.
        url: Where it is reached.
        is_live: Whether it has been heard within its lease.
        is_leaving: Whether it is handing its pools over in order to stop.
        num_owned_pools, num_followed_pools: That it answers for, and that it keeps warm.
        heard_ms_ago: Since its last heartbeat arrived.
    """

    node: str
    url: str
    is_live: bool
    is_leaving: bool
    num_owned_pools: int
    num_followed_pools: int
    heard_ms_ago: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPoolReport:
    """A pool of the cluster, wherever it is.

    Attributes:
        pool: Its name.
        node: Its owner; None while it has none.
        url: Where that is reached.
        ownership: Rises with each owner.
        standby: The node that is to own it next; None without one.
        role: Of the node that answers: ``owner``, ``standby`` or ``none``.
        lag: Messages of the pool's stream that the node that answers has yet to apply; None without a role.
    """

    pool: str
    node: str | None
    url: str | None
    ownership: int
    standby: str | None
    role: str
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """A cluster, as one of its nodes knows it.

    Attributes:
        cluster: Its name.
        node: The one that answers.
        is_connected: Whether that node reaches NATS.
        lease_left_ms: How long that node may answer for its pools unless it renews its lease.
        nodes: All that are known.
        pools: All that the caller may know of.
    """

    cluster: str
    node: str
    is_connected: bool
    lease_left_ms: int
    nodes: Sequence[NodeReport]
    pools: Sequence[ClusterPoolReport]
