"""Writes to a pool's stream, each message at the place that its writer expects: that is the fence.

Whoever has written last knows how far the stream goes. An owner that was replaced does not: what it publishes
is refused, and has not happened.
"""

import asyncio
from collections.abc import Sequence

import structlog
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from blockyard.server.cluster.connection import PASSING, RETRY_S, Connection, is_outrun
from blockyard.server.cluster.entries import Entry, EntryKind, in_messages
from blockyard.server.cluster.names import Names
from blockyard.server.journal.errors import AppendFailed
from blockyard.server.journal.interface import PoolKey, Record

log = structlog.get_logger("blockyard.cluster")

PUBLISH_S = 1.0
"""How long an acknowledgement is waited for before a publish is repeated."""
HEADERS_BYTES = 1_024
"""Of a message, for its headers."""


class Outrun(AppendFailed):
    """Another has written to the stream: a later owner, or this node under an earlier lease."""


class PoolStream:
    """One pool's stream, and how far its writer knows it.

    Args:
        connection: To NATS.
        names: The cluster's.
        key: The pool's.

    Attributes:
        sequence: Of the last message that is known.
        ownership: Number of the owner, in all that is written.
    """

    def __init__(self, connection: Connection, names: Names, key: PoolKey) -> None:
        self._connection = connection
        self._name = names.stream(key)
        self._subject = names.subject(key)
        self.sequence = 0
        self.ownership = 0

    async def create(self, num_replicas: int) -> None:
        """Make the stream, if there is none. Raises what NATS says against it."""
        await self._connection.jetstream.add_stream(
            StreamConfig(
                name=self._name,
                subjects=[self._subject],
                retention=RetentionPolicy.LIMITS,
                storage=StorageType.FILE,
                discard=DiscardPolicy.NEW,
                num_replicas=num_replicas,
                deny_delete=True,
                allow_direct=False,  # whoever asks is to be told by the leader
            )
        )

    async def end(self) -> int:
        """Sequence of its last message, by its leader. Raises what NATS says against it."""
        info = await self._connection.jetstream.stream_info(self._name)
        return info.state.last_seq

    async def append(self, batch: Sequence[Record]) -> None:
        """Write records of this pool, as `Journal.append`: it goes on until they are written, or refused.

        Raises:
            Outrun: They are refused.
        """
        for record in batch:
            whole = Entry(
                kind=EntryKind.BATCH, ownership=self.ownership, number=record.number, payload=record.payload
            )
            for entry in in_messages(whole, self._connection.client.max_payload - HEADERS_BYTES):
                await self.publish(entry)

    async def publish(self, entry: Entry) -> None:
        """Write one entry behind the last that is known. Raises Outrun."""
        message, expected = entry.encode(), self.sequence
        headers = {"Nats-Expected-Last-Sequence": str(expected)}
        num_tries = 0
        while True:
            num_tries += 1
            try:
                await self._connection.jetstream.publish(
                    self._subject, message, timeout=PUBLISH_S, headers=headers
                )
            except APIError as error:
                if is_outrun(error):
                    if await self._has(expected + 1, message):
                        break  # it was stored, and its acknowledgement lost
                    raise Outrun(f"another has written to {self._name}: {error.description}") from error
                log.debug("a publish failed", stream=self._name, error=repr(error))
            except PASSING as error:
                log.debug("a publish failed", stream=self._name, error=repr(error))
                if num_tries % 10 == 0 and await self._is_gone():
                    raise Outrun(f"{self._name} was deleted") from error
            else:
                break
            await asyncio.sleep(RETRY_S)
        self.sequence = expected + 1

    async def _has(self, sequence: int, message: bytes) -> bool:
        """Whether the message of ``sequence`` is this one: what its leader says, once it does."""
        while True:
            try:
                found = await self._connection.jetstream.get_msg(self._name, sequence)
            except NotFoundError:
                return False
            except PASSING:
                await asyncio.sleep(RETRY_S)
            else:
                return found.data == message

    async def _is_gone(self) -> bool:
        try:
            await self.end()
        except NotFoundError:
            return True
        except PASSING:
            return False
        return False

    async def forget(self, sequence: int) -> None:
        """Purge the messages up to ``sequence``, which a snapshot has. Raises what NATS says against it."""
        await self._connection.jetstream.purge_stream(self._name, seq=sequence + 1)

    async def delete(self) -> None:
        """Delete the stream, if there is one. Raises what else NATS says against it."""
        try:
            await self._connection.jetstream.delete_stream(self._name)
        except NotFoundError:
            return
