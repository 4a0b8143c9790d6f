"""What the process that takes a snapshot of a pool is told: one argument of its command line."""

import json
from dataclasses import asdict, dataclass

from blockyard.server.cluster.connection import NatsAccess
from blockyard.server.journal.interface import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTask:
    """One snapshot to take.

    Attributes:
        access: How NATS is reached.
        cluster: The cluster's name.
        num_replicas: Of buckets that are made.
        pool: The pool's name.
        key: Of its stream.
        server_id: The process that wants it: without that one, there is nothing to do.
    """

    access: NatsAccess
    cluster: str
    num_replicas: int
    pool: str
    key: PoolKey
    server_id: int

    def encode(self) -> str:
        """As it travels."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, argument: str) -> "SnapshotTask":
        """The inverse."""
        told = json.loads(argument)
        access = told.pop("access")
        servers = tuple(access.pop("servers"))
        return cls(access=NatsAccess(servers=servers, **access), **told)
