"""The pools of a cluster: what each was made from, and who owns it as far as the bucket knows.

Who owns a pool is decided in its stream. The bucket follows, so that every node knows whom to send callers
to.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import structlog

from blockyard.server.cluster.bucket import Bucket, NotOurs, Raced, Stored
from blockyard.server.journal.interface import PoolKey

log = structlog.get_logger("blockyard.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPool:
    """A pool that was created and not deleted.

    Attributes:
        name: Its name.
        key: Of its stream; never used twice.
        definition: What it was created from, see `encode_definition`.
        node: The node that owned it last.
        ownership: Under which number.
        snapshot: Sequence of the message behind which its latest snapshot is; 0 where there is none.
        revision: Of its value in the bucket.
    """

    name: str
    key: PoolKey
    definition: bytes
    node: str
    ownership: int
    snapshot: int = 0
    revision: int = 0

    def encode(self) -> bytes:
        """As it is stored."""
        return json.dumps(
            {
                "key": self.key,
                "definition": base64.b85encode(self.definition).decode(),
                "node": self.node,
                "ownership": self.ownership,
                "snapshot": self.snapshot,
            }
        ).encode()

    @classmethod
    def decode(cls, name: str, value: bytes, revision: int) -> "RegisteredPool":
        """The inverse. Raises NotOurs."""
        try:
            told = json.loads(value)
            return cls(
                name=name,
                key=PoolKey(told["key"]),
                definition=base64.b85decode(told["definition"]),
                node=told["node"],
                ownership=told["ownership"],
                snapshot=told["snapshot"],
                revision=revision,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise NotOurs(f"no pool: {error!r}") from error


@dataclass(frozen=True, slots=True)
class _Grave:
    """Where a pool of some name was: the number of its last owner."""

    ownership: int

    def encode(self) -> bytes:
        return json.dumps({"is_deleted": True, "ownership": self.ownership}).encode()

    @classmethod
    def decode(cls, stored: Stored) -> "_Grave | None":
        """None where there is a pool, or never was one; raises NotOurs."""
        try:
            told = {} if stored.value is None else json.loads(stored.value)
            return cls(told["ownership"]) if told.get("is_deleted") else None
        except (ValueError, AttributeError, KeyError) as error:
            raise NotOurs(f"no pool: {error!r}") from error


class Registry:
    """Empty until it has been followed for a moment: see `loaded`.

    Args:
        bucket: Of pools.
        on_change: Called where pools have come, gone or moved.
    """

    def __init__(self, bucket: Bucket, on_change: Callable[[], None]) -> None:
        self._bucket = bucket
        self._on_change = on_change
        self._pools: dict[str, RegisteredPool] = {}
        self._revisions: dict[str, int] = {}
        self._strange: set[str] = set()
        self._heard = 0
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[RegisteredPool]:
        return iter(self._pools.values())

    @property
    def is_understood(self) -> bool:
        """Whether no value may be of a later version, and so of a pool that is not known here."""
        return not self._strange

    def find(self, name: str) -> RegisteredPool | None:
        """The pool of this name, as far as this node has heard."""
        return self._pools.get(name)

    async def look(self, name: str) -> RegisteredPool | None:
        """The same, by what the bucket's leader has now. Raises what NATS says against it."""
        stored = await self._bucket.get(name)
        if stored is not None:
            self._hear(stored)
        return self._pools.get(name)

    async def run(self) -> None:
        """Follow the bucket, for ever."""
        async for values in self._bucket.follow():
            for stored in values:
                self._hear(stored)
                self._heard = max(self._heard, stored.revision)
            self._news.set()

    async def loaded(self) -> None:
        """Until all that is in the bucket now has been heard. Raises what NATS says against it."""
        last = await self._bucket.last_revision()
        while self._heard < last:
            self._news.clear()
            await self._news.wait()

    async def create(self, pool: RegisteredPool) -> None:
        """Register a pool.

        Raises:
            Raced: Its name is taken.
        """
        stored = await self._bucket.get(pool.name)
        if stored is None or stored.value is None:
            revision = await self._bucket.create(pool.name, pool.encode())
        elif _Grave.decode(stored) is not None:
            revision = await self._bucket.update(pool.name, pool.encode(), stored.revision)
        else:
            raise Raced(pool.name)
        self._hear(Stored(pool.name, pool.encode(), revision))

    async def first_ownership(self, name: str) -> int:
        """The number of the first owner of a new pool: above those of all earlier pools of its name.

        Callers who knew one of them would not believe a lower one. Raises what NATS says against it.
        """
        stored = await self._bucket.get(name)
        grave = None if stored is None else _Grave.decode(stored)
        return 1 if grave is None else grave.ownership + 1

    async def note_owner(self, name: str, node: str, ownership: int) -> None:
        """``node`` owns the pool now, under this number. Raises what NATS says against it."""

        def noted(known: RegisteredPool) -> bytes | None:
            is_news = known.ownership < ownership
            return replace(known, node=node, ownership=ownership).encode() if is_news else None

        await self._change(name, noted)

    async def note_snapshot(self, name: str, key: PoolKey, sequence: int) -> None:
        """The pool has a snapshot behind this message. Raises what NATS says against it."""

        def noted(known: RegisteredPool) -> bytes | None:
            is_news = known.key == key and known.snapshot < sequence
            return replace(known, snapshot=sequence).encode() if is_news else None

        await self._change(name, noted)

    async def delete(self, pool: RegisteredPool, ownership: int) -> None:
        """Forget a pool, if it is still there under its key; not the number of its last owner.

        Raises what NATS says against it.
        """

        def buried(known: RegisteredPool) -> bytes | None:
            return _Grave(max(ownership, known.ownership)).encode() if known.key == pool.key else None

        await self._change(pool.name, buried)

    async def _change(self, name: str, change: Callable[[RegisteredPool], bytes | None]) -> None:
        """Set a pool's value to what ``change`` makes of it, unless that is None, or the pool is no more."""
        while True:
            known = await self.look(name)
            value = None if known is None else change(known)
            if known is None or value is None:
                return
            try:
                revision = await self._bucket.update(name, value, known.revision)
            except Raced:
                continue
            self._hear(Stored(name, value, revision))
            return

    def _hear(self, stored: Stored) -> None:
        if stored.revision <= self._revisions.get(stored.name, 0):
            return
        self._revisions[stored.name] = stored.revision
        self._strange.discard(stored.name)
        try:
            if stored.value is None or _Grave.decode(stored) is not None:
                self._pools.pop(stored.name, None)
            else:
                self._pools[stored.name] = RegisteredPool.decode(stored.name, stored.value, stored.revision)
        except NotOurs as error:
            log.warning("what stands for a pool is passed over", pool=stored.name, error=str(error))
            self._strange.add(stored.name)
            self._pools.pop(stored.name, None)
        self._on_change()
