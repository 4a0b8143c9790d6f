"""What a node of a cluster is told."""

from dataclasses import dataclass

from blockyard.server.cluster.connection import NatsAccess
from blockyard.server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Of one node.

    Attributes:
        access: How it reaches NATS.
        cluster: The cluster's name.
        node: Its own.
        url: Where others reach it.
        num_replicas: Of streams and buckets that it makes.
        lease_ms: How long its lease lasts.
    """

    access: NatsAccess
    cluster: str
    node: str
    url: str
    num_replicas: int
    lease_ms: int

    @classmethod
    def of(cls, settings: Settings, url: str, host_name: str) -> "NodeSettings":
        """As ``settings`` have it; ``url`` and ``host_name`` where they say nothing."""
        return cls(
            access=NatsAccess.of(settings),
            cluster=settings.cluster_name,
            node=settings.node_name or host_name,
            url=settings.advertise_url or url,
            num_replicas=settings.cluster_replicas,
            lease_ms=settings.node_lease_ms,
        )
