"""Snapshots of the pools in an object store of JetStream, by the key of their stream and their place in it.

Which is the latest stands in the registry: none takes the place of another, so that a late one does no harm.
"""

import asyncio
import base64
import contextlib
import hashlib

from nats.js.api import ObjectStoreConfig
from nats.js.errors import NotFoundError, ObjectNotFoundError
from nats.js.object_store import ObjectStore

from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.reader import StreamReader
from blockyard.server.cluster.stored_snapshot import StoredSnapshot
from blockyard.server.journal.errors import DamagedJournal
from blockyard.server.journal.interface import PoolKey

PART_S = 5.0
"""How long the next part of a snapshot is waited for."""


class SnapshotBucket:
    """Opened with `open`."""

    def __init__(self, connection: Connection, name: str, store: ObjectStore) -> None:
        self._connection = connection
        self._name = name
        self._store = store

    @classmethod
    async def open(cls, connection: Connection, name: str, *, num_replicas: int) -> "SnapshotBucket":
        """The bucket of this name, made if there is none. Raises what NATS says against it."""
        try:
            store = await connection.jetstream.object_store(name)
        except NotFoundError:
            config = ObjectStoreConfig(bucket=name, replicas=num_replicas)
            store = await connection.jetstream.create_object_store(name, config)
        return cls(connection, name, store)

    async def load(self, key: PoolKey, sequence: int) -> StoredSnapshot | None:
        """The one behind the message of ``sequence``; None where there is none.

        Raises:
            NewerJournal: A later version took it.
            DamagedJournal: It is not as it was written.
            TimeoutError, nats.errors.Error: It cannot be read now: another may be taking its place.
        """
        try:
            info = await self._store.get_info(_name(key, sequence))
        except ObjectNotFoundError:
            return None
        subject = f"$O.{self._name}.C.{info.nuid}"
        stored = bytearray()
        async with StreamReader(self._connection, f"OBJ_{self._name}", after=0, subject=subject) as reader:
            while len(stored) < (info.size or 0):
                async with asyncio.timeout(PART_S):  # else it was replaced meanwhile
                    parts = await reader.read()
                for part in parts:
                    stored += part.data
        hashed = await asyncio.to_thread(hashlib.sha256, stored)  # of a large pool it takes long
        digest = base64.urlsafe_b64encode(hashed.digest()).decode()
        if info.digest != f"SHA-256={digest}":
            raise DamagedJournal(f"the snapshot of stream {key:016x} is not as it was written")
        return StoredSnapshot.decode(bytes(stored))

    async def save(self, key: PoolKey, snapshot: StoredSnapshot) -> None:
        """Keep a snapshot. Raises what NATS says against it."""
        await self._store.put(_name(key, snapshot.sequence), snapshot.encode())

    async def delete(self, key: PoolKey, sequence: int) -> None:
        """Forget one, if it is there. Raises what NATS says against it."""
        with contextlib.suppress(NotFoundError):
            await self._store.delete(_name(key, sequence))


def _name(key: PoolKey, sequence: int) -> str:
    return f"{key:016x}.{sequence}"
