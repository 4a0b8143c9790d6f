"""Take a snapshot of one pool beside the node that owns it: ``python -m ... TASK``, see `SnapshotTask`.

As on one machine, a snapshot is the journal, replayed: here the pool's stream, up to its end when this began.
Then what the snapshot has is purged from the stream. Its output ends with the snapshot's number.
"""

import asyncio
import os
import sys

from blockyard.server import logs
from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.pool_stream import PoolStream
from blockyard.server.cluster.reader import StreamReader
from blockyard.server.cluster.registry import Registry
from blockyard.server.cluster.snapshot_bucket import SnapshotBucket
from blockyard.server.cluster.snapshot_task import SnapshotTask
from blockyard.server.journal.take_snapshot import NICENESS

WATCH_S = 1.0
"""How often it is found out whether the node is there."""
READ_S = 30.0
"""How long the next messages are waited for."""


async def main(task: SnapshotTask) -> None:
    """Take it; of a pool that was deleted in the meantime, none."""
    watching = asyncio.create_task(_end_with(task.server_id))
    connection = await task.access.connect("blockyard snapshot")
    try:
        await _take(connection, task)
    finally:
        await connection.close()
        watching.cancel()


async def _end_with(server: int) -> None:
    """End once the node has, whatever is waited for: nobody else would."""
    while os.getppid() == server:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(WATCH_S)
    os._exit(os.EX_TEMPFAIL)


async def _take(connection: Connection, task: SnapshotTask) -> None:
    names, key, num_replicas = Names(task.cluster), task.key, task.num_replicas
    registry = Registry(await Bucket.open(connection, names.pools, num_replicas=num_replicas), lambda: None)
    snapshots = await SnapshotBucket.open(connection, names.snapshots, num_replicas=num_replicas)
    stream = PoolStream(connection, names, key)
    pool = await registry.look(task.pool)
    if pool is None or pool.key != key:
        return
    followed = FollowedPool.begin(pool, await snapshots.load(key, pool.snapshot))
    end = await stream.end()
    async with StreamReader(connection, names.stream(key), after=followed.sequence) as reader:
        while followed.sequence < end:
            async with asyncio.timeout(READ_S):  # else the pool was deleted meanwhile
                messages = await reader.read()
            for message in messages:
                followed.read(message)
    taken = followed.snapshot()
    if followed.is_deleted or taken.sequence == pool.snapshot or os.getppid() != task.server_id:
        return
    await snapshots.save(key, taken)
    await registry.note_snapshot(task.pool, key, taken.sequence)
    await stream.forget(taken.sequence)
    await snapshots.delete(key, pool.snapshot)
    print(taken.number)  # noqa: T201 - for the node


if __name__ == "__main__":
    os.nice(NICENESS)
    logs.configure("error", "console")  # standard output is the node's
    asyncio.run(main(SnapshotTask.decode(sys.argv[1])))
