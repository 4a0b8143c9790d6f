"""Follows a pool's stream, to have the pool warm: what cannot be gone on with is loaded anew."""

import asyncio
from collections.abc import Callable

import structlog

from blockyard.server.cluster.connection import PASSING, RETRY_S
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.pool_stream import PoolStream
from blockyard.server.cluster.reader import Message, StreamReader
from blockyard.server.cluster.stage import Stage
from blockyard.server.cluster.surroundings import Surroundings
from blockyard.server.cluster.tasks import end
from blockyard.server.collector import no_collections
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.interface import PoolKey

log = structlog.get_logger("blockyard.cluster")

SLICE_S = 0.002
"""How long messages are applied before others have their turn."""
PAUSE_AFTER_DAMAGE_S = 5.0


class Outdated(JournalError):
    """The pool was deleted, or made anew under its name."""


class Follower:
    """Of one pool; it does nothing before `start`.

    Args:
        name: The pool's.
        key: Of its stream.
        around: What the node has.
        on_stage: Called where it begins to load, and to follow.

    Attributes:
        followed: The pool's state; None while it loads.
        is_warm: Whether all that there was to be read, when this node began, has been.
    """

    def __init__(
        self, name: str, key: PoolKey, around: Surroundings, on_stage: Callable[[Stage], None]
    ) -> None:
        self._name = name
        self._key = key
        self._around = around
        self._on_stage = on_stage
        self._stream = PoolStream(around.connection, around.names, key)
        self._following: asyncio.Task[None] | None = None
        self._reader: StreamReader | None = None
        self.followed: FollowedPool | None = None
        self.is_warm = False

    @property
    def lag(self) -> int | None:
        """Messages that are there and not applied yet; None where it does not follow."""
        return None if self._reader is None else self._reader.num_pending

    def start(self) -> None:
        """Begin to follow, from where ``followed`` is, or anew where that is None."""
        self._following = asyncio.create_task(self._follow_for_ever())

    async def stop(self) -> None:
        """Follow no more; ``followed`` stays as it is."""
        following, self._following = self._following, None
        if following is not None:
            await end(following)

    def forget(self) -> None:
        """What is ``followed`` is not what the stream tells: begin anew."""
        self.followed, self.is_warm = None, False
        if self._following is None:
            self.start()

    def read_on(self) -> None:
        """Ask for what is in the stream and did not come, since there is more."""
        if self._reader is not None:
            self._reader.restart()

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                if self.followed is None:
                    self._on_stage(Stage.LOADING)
                    self.followed = await self._load()
                self._on_stage(Stage.FOLLOWING)
                await self._follow(self.followed)
            except JournalError as error:
                log.warning(
                    "a pool cannot be followed, and is loaded anew", pool=self._name, error=str(error)
                )
                await asyncio.sleep(PAUSE_AFTER_DAMAGE_S if self.is_warm else RETRY_S)
            except PASSING as error:
                log.debug("a pool cannot be loaded now", pool=self._name, error=repr(error))
                await asyncio.sleep(RETRY_S)
            except Exception:  # whatever it is: without a follower the pool would have no next owner
                log.exception("a pool cannot be followed, and is loaded anew", pool=self._name)
                await asyncio.sleep(PAUSE_AFTER_DAMAGE_S)
            self.followed, self.is_warm = None, False

    async def _load(self) -> FollowedPool:
        around = self._around
        async with around.loads:
            registered = await around.registry.look(self._name)
            if registered is None or registered.key != self._key:
                raise Outdated(f"pool {self._name!r} is no more")
            snapshot = await around.snapshots.load(self._key, registered.snapshot)
            with no_collections():
                return await asyncio.to_thread(FollowedPool.begin, registered, snapshot)

    async def _follow(self, followed: FollowedPool) -> None:
        last = await self._stream.end()
        name = self._around.names.stream(self._key)
        async with StreamReader(self._around.connection, name, after=followed.sequence) as reader:
            self._reader = reader
            try:
                while True:
                    if not self.is_warm and followed.sequence >= last:
                        self.is_warm = True
                        self._around.news.set()
                    await self._apply(followed, await reader.read())
            finally:
                self._reader = None

    async def _apply(self, followed: FollowedPool, messages: list[Message]) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SLICE_S
        for message in messages:
            tenure = followed.tenure
            for _ in followed.steps(message):
                if loop.time() > until_s:
                    await asyncio.sleep(0)
                    until_s = loop.time() + SLICE_S
            if followed.tenure != tenure:
                self._around.news.set()
