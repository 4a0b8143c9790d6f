"""The buckets of a cluster, which its nodes share."""

from dataclasses import dataclass

from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import Connection, persist
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.snapshot_bucket import SnapshotBucket

TTL_LEASES = 5
"""After so many leases the key of a dead node is forgotten, should nobody delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Opened with `open`.

    Attributes:
        nodes: What each node says of itself.
        pools: The registry's.
        snapshots: Of pools.
    """

    nodes: Bucket
    pools: Bucket
    snapshots: SnapshotBucket

    @classmethod
    async def open(
        cls, connection: Connection, names: Names, *, num_replicas: int, lease_ms: int
    ) -> "Buckets":
        """All of them, each made if there is none: it takes as long as it takes.

        Args:
            connection: To NATS.
            names: The cluster's.
            num_replicas: Of those that are made.
            lease_ms: How long a node's lease lasts.

        Raises:
            nats.js.errors.NotFoundError: NATS has no JetStream.
        """
        ttl_s = TTL_LEASES * lease_ms / 1_000
        return cls(
            nodes=await persist(
                lambda: Bucket.open(connection, names.nodes, num_replicas=num_replicas, ttl_s=ttl_s),
                "the bucket of nodes cannot be had",
            ),
            pools=await persist(
                lambda: Bucket.open(connection, names.pools, num_replicas=num_replicas),
                "the bucket of pools cannot be had",
            ),
            snapshots=await persist(
                lambda: SnapshotBucket.open(connection, names.snapshots, num_replicas=num_replicas),
                "the bucket of snapshots cannot be had",
            ),
        )
