"""A JetStream key-value bucket: compare and set, and following what others set."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from nats.js.api import KeyValueConfig
from nats.js.errors import (
    APIError,
    InvalidKeyError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
)
from nats.js.kv import KV_MARKER_REASON, KV_OP, KeyValue

from blockyard.server.cluster.connection import Connection, is_outrun
from blockyard.server.cluster.names import from_bucket, in_bucket
from blockyard.server.cluster.reader import Message, StreamReader


class NotOurs(ValueError):
    """The value is not as we write them: of a later version, or of somebody else."""


class Raced(Exception):
    """The value is another than was expected: nothing was set."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A value and its revision.

    Attributes:
        name: Its key, as it is known outside.
        value: None where it was deleted.
        revision: Rises with each change of the bucket.
    """

    name: str
    value: bytes | None
    revision: int


class Bucket:
    """One bucket, opened with `open`."""

    def __init__(self, connection: Connection, name: str, values: KeyValue) -> None:
        self._connection = connection
        self._name = name
        self._values = values

    @classmethod
    async def open(
        cls, connection: Connection, name: str, *, num_replicas: int, ttl_s: float = 0
    ) -> "Bucket":
        """The bucket of this name, made if there is none.

        Args:
            connection: To NATS.
            name: Its name.
            num_replicas: Of its values, where it is made.
            ttl_s: After so long a value that is not set anew is forgotten; 0: never.

        Raises:
            nats.js.errors.Error: It cannot be made.
        """
        config = KeyValueConfig(bucket=name, history=1, ttl=ttl_s, replicas=num_replicas, direct=False)
        try:
            values = await connection.jetstream.key_value(name)
        except NotFoundError:
            values = await connection.jetstream.create_key_value(config)
        return cls(connection, name, values)

    async def get(self, name: str) -> Stored | None:
        """What its leader has; None where there is nothing. Raises what NATS says against it."""
        try:
            found = await self._values.get(in_bucket(name))
        except KeyNotFoundError as error:
            if error.entry is not None:  # deleted
                return Stored(name, None, error.entry.revision)
            return None
        except InvalidKeyError:  # whatever somebody asks for
            return None
        assert found.revision is not None, "a stored value has one"
        return Stored(name, found.value, found.revision)

    async def create(self, name: str, value: bytes) -> int:
        """Set what is not there; its revision.

        Raises:
            Raced: It is.
        """
        try:
            return await self._values.create(in_bucket(name), value)
        except KeyWrongLastSequenceError as error:
            raise Raced(name) from error

    async def update(self, name: str, value: bytes, revision: int) -> int:
        """Set what has this revision; its new one. Raises Raced."""
        try:
            return await self._values.update(in_bucket(name), value, last=revision)
        except KeyWrongLastSequenceError as error:
            raise Raced(name) from error

    async def delete(self, name: str, revision: int) -> None:
        """Delete what has this revision. Raises Raced."""
        try:
            await self._values.delete(in_bucket(name), last=revision)
        except APIError as error:
            if is_outrun(error):
                raise Raced(name) from error
            raise

    async def follow(self) -> AsyncIterator[list[Stored]]:
        """All values as they are, then as they become: for ever."""
        async with StreamReader(self._connection, f"KV_{self._name}", after=0) as reader:
            while True:
                yield [self._stored(message) for message in await reader.read()]

    async def last_revision(self) -> int:
        """Of the latest change, by its leader. Raises what NATS says against it."""
        info = await self._connection.jetstream.stream_info(f"KV_{self._name}")
        return info.state.last_seq

    def _stored(self, message: Message) -> Stored:
        key = message.subject.removeprefix(f"$KV.{self._name}.")
        is_gone = KV_OP in message.headers or KV_MARKER_REASON in message.headers
        return Stored(from_bucket(key), None if is_gone else message.data, message.sequence)
