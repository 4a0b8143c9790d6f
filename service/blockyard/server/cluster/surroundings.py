"""What a node has once it reaches NATS, and all that it does with pools goes by."""

import asyncio
from dataclasses import dataclass, field

from blockyard.server.clock import Clock
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.figures import ClusterFigures
from blockyard.server.cluster.heartbeat import Heartbeat
from blockyard.server.cluster.journal import ClusterJournal
from blockyard.server.cluster.members import Members
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.node_settings import NodeSettings
from blockyard.server.cluster.registry import Registry
from blockyard.server.cluster.snapshot_bucket import SnapshotBucket
from blockyard.server.cluster.tasks import Chores
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.pools import Pools

MAX_LOADS = 4


def _loads() -> asyncio.Semaphore:
    return asyncio.Semaphore(MAX_LOADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Of one node.

    Attributes:
        settings: The node's.
        connection: To NATS.
        names: The cluster's.
        heartbeat: The node's.
        members: The cluster's nodes.
        registry: The cluster's pools.
        snapshots: Of these.
        pools: What the node serves.
        journal: What it writes them to.
        clock: The time that commands are given.
        figures: What has happened to the node.
        journal_figures: What publishing costs.
        news: Set where a pool may be due for something.
        chores: What is done beside all else.
        loads: Held by each pool that is loaded, so that a few are at a time.
    """

    settings: NodeSettings
    connection: Connection
    names: Names
    heartbeat: Heartbeat
    members: Members
    registry: Registry
    snapshots: SnapshotBucket
    pools: Pools
    journal: ClusterJournal
    clock: Clock
    figures: ClusterFigures
    journal_figures: JournalFigures
    news: asyncio.Event
    chores: Chores
    loads: asyncio.Semaphore = field(default_factory=_loads)
