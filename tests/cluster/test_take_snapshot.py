"""The process that takes a snapshot, without a node."""

import os
import subprocess
import sys

from blockyard.server.cluster.connection import NatsAccess
from blockyard.server.cluster.snapshot_task import SnapshotTask
from blockyard.server.journal.interface import PoolKey
from events.publishing import free_port


def test_it_ends_where_its_node_is_gone_and_nats_cannot_be_reached() -> None:
    access = NatsAccess(servers=(f"nats://127.0.0.1:{free_port()}",))
    task = SnapshotTask(
        access=access, cluster="test", num_replicas=1, pool="pool", key=PoolKey(1), server_id=os.getpid() + 1
    )
    command = [sys.executable, "-m", "blockyard.server.cluster.take_snapshot", task.encode()]
    ended = subprocess.run(command, timeout=60, check=False, capture_output=True)
    assert ended.returncode == os.EX_TEMPFAIL
    assert ended.stdout == b""
