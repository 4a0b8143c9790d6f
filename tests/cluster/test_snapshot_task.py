"""What the process that takes a snapshot is told."""

from blockyard.server.cluster.connection import NatsAccess
from blockyard.server.cluster.snapshot_task import SnapshotTask
from blockyard.server.journal.interface import PoolKey


def test_a_task_arrives_as_it_was_given() -> None:
    access = NatsAccess(servers=("nats://a:4222", "tls://b:4222"), credentials="user.creds", ca_cert="ca.pem")
    task = SnapshotTask(
        access=access, cluster="yard", num_replicas=3, pool="a b", key=PoolKey(2**62 - 1), server_id=7
    )
    assert SnapshotTask.decode(task.encode()) == task
