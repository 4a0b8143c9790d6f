"""What the streams, buckets and subjects of a cluster are called."""

import re
from dataclasses import dataclass

from blockyard.server.journal.interface import PoolKey


@dataclass(frozen=True, slots=True)
class Names:
    """Those of the cluster ``cluster``: several may share NATS servers."""

    cluster: str

    @property
    def nodes(self) -> str:
        """Bucket of nodes, by their names."""
        return f"{self.cluster}-nodes"

    @property
    def pools(self) -> str:
        """Bucket of pools, by their names."""
        return f"{self.cluster}-pools"

    @property
    def snapshots(self) -> str:
        """Bucket of snapshots, by the keys of their pools."""
        return f"{self.cluster}-snapshots"

    def stream(self, key: PoolKey) -> str:
        """A pool's stream."""
        return f"{self.cluster}-pool-{key:016x}"

    def key_of(self, stream: str) -> PoolKey | None:
        """The pool that a stream is of; None for all others."""
        found = re.fullmatch(f"{re.escape(self.cluster)}-pool-([0-9a-f]{{16}})", stream)
        return None if found is None else PoolKey(int(found[1], 16))

    def subject(self, key: PoolKey) -> str:
        """The one subject of a pool's stream."""
        return f"{self.cluster}.pool.{key:016x}"

    def requests(self, node: str) -> str:
        """Where a node is asked for a hand-over."""
        return f"{self.cluster}.node.{in_bucket(node)}"


def in_bucket(name: str) -> str:
    """The key of a node or a pool in its bucket, of no other: dots have a meaning there."""
    return name.replace("=", "=3D").replace(".", "=2E")


def from_bucket(key: str) -> str:
    """The inverse."""
    return key.replace("=2E", ".").replace("=3D", "=")
