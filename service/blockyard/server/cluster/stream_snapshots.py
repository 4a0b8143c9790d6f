"""Snapshots of the pools that a node owns, in their bucket; see `take_snapshot`."""

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from blockyard.server.cluster.node import ClusterNode
from blockyard.server.cluster.snapshot_task import SnapshotTask
from blockyard.server.journal.interface import PoolKey


class StreamSnapshots:
    """Those of ``node``."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def process(self, key: PoolKey) -> Sequence[str]:
        """See `Snapshots.process`."""
        settings = self._node.settings
        task = SnapshotTask(
            access=settings.access,
            cluster=settings.cluster,
            num_replicas=settings.num_replicas,
            pool=next((name for name, role in self._node.roles.items() if role.key == key), ""),
            key=key,
            server_id=os.getpid(),
        )
        return "blockyard.server.cluster.take_snapshot", task.encode()

    async def tend(self, keys: AbstractSet[PoolKey]) -> None:
        """See `Snapshots.tend`: there is nothing."""

    async def forget(self, key: PoolKey) -> None:
        """See `Snapshots.forget`: whoever took the snapshot has purged the stream up to it."""
