"""What this node is to one pool: it follows it, to have it warm, or owns it, or is about to change that.

loading -> following -> owning -> suspended     no lease: nobody is told anything, the journal goes on
   ^          ^  |         |  ^------'          a lease again, and no other owner since
   |          |  '-take over
   |          '--hand over-'
   '---- lost: another owns it; or what was read cannot be gone on with
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any

import structlog

from blockyard.server.clock import Clock
from blockyard.server.cluster.connection import PASSING, RETRY_S, Connection
from blockyard.server.cluster.entries import Entry, EntryKind, Session
from blockyard.server.cluster.figures import ClusterFigures, TakeOver
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.journal import ClusterJournal, OwnerCommit, moving
from blockyard.server.cluster.members import Members
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.pool_stream import Outrun, PoolStream
from blockyard.server.cluster.reader import StreamReader
from blockyard.server.cluster.registry import Registry
from blockyard.server.cluster.snapshot_bucket import SnapshotBucket
from blockyard.server.cluster.tasks import end
from blockyard.server.collector import no_collections
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line
from blockyard.server.pools import Pools

log = structlog.get_logger("blockyard.cluster")

SLICE_S = 0.002
"""How long messages are applied before others have their turn."""
MAX_LOADS = 4
"""Pools that are loaded at a time."""
PAUSE_AFTER_DAMAGE_S = 5.0


class Outdated(JournalError):
    """The pool was deleted, or made anew under its name."""


class Stage(Enum):
    """Where a node is with a pool."""

    MAKING = "making"
    """It makes the pool."""
    LOADING = "loading"
    """It reads what there is; there is no state yet."""
    FOLLOWING = "following"
    """It applies what the owner publishes."""
    TAKING_OVER = "taking over"
    """It follows, and asks to be the next owner."""
    OWNING = "owning"
    """It answers for the pool."""
    SUSPENDED = "suspended"
    """It owned the pool when its lease ended."""
    LEAVING = "leaving"
    """It owned the pool until now, and writes down that it hands it over, or deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all roles of a node share."""

    connection: Connection
    names: Names
    members: Members
    registry: Registry
    snapshots: SnapshotBucket
    pools: Pools
    journal: ClusterJournal
    clock: Clock
    figures: ClusterFigures
    journal_figures: JournalFigures
    loads: asyncio.Semaphore
    on_news: Callable[[], None]


class PoolRole:
    """Of one pool; begins with `follow`, or with `own` where the pool is new.

    Args:
        name: The pool's.
        key: Of its stream.
        around: What all roles share.

    Attributes:
        stage: Where this node is with it.
        followed: Its state; None while it loads.
        is_warm: Whether all that there was to be read, when this node began, has been.
        stream: To write to, while it owns the pool.
    """

    def __init__(self, name: str, key: PoolKey, around: Surroundings) -> None:
        self.name = name
        self.key = key
        self._around = around
        self._following: asyncio.Task[None] | None = None
        self._acting: asyncio.Task[None] | None = None
        self._reader: StreamReader | None = None
        self._commit: OwnerCommit | None = None
        self._session = Session("")
        self._is_over = False
        self.stage = Stage.LOADING
        self.followed: FollowedPool | None = None
        self.is_warm = False
        self.stream = PoolStream(around.connection, around.names, key)

    @property
    def is_busy(self) -> bool:
        """Whether it is about to change what it is."""
        return self._acting is not None and not self._acting.done()

    @property
    def lag(self) -> int | None:
        """Messages that are there and not applied yet; None where it does not follow."""
        return None if self._reader is None else self._reader.num_pending

    @property
    def ownership(self) -> int:
        """The latest number that it knows of."""
        if self.stage in (Stage.OWNING, Stage.SUSPENDED, Stage.LEAVING):
            return self.stream.ownership
        return 0 if self.followed is None else self.followed.ownership

    def follow(self) -> None:
        """Begin to follow, from where ``followed`` is, or anew where that is None."""
        self._following = asyncio.create_task(self._follow_for_ever())

    async def stop(self) -> None:
        """Be nothing to the pool any more: what it did not tell others of is lost."""
        self._is_over = True
        await self._stop_following()
        if self._acting is not None:
            await end(self._acting)
        if self.stage is Stage.OWNING:
            self._release()
        self._close_journal()
        self.stage = Stage.LOADING

    def act(self, action: Coroutine[Any, Any, None]) -> None:
        """Do one of `take_over`, `hand_over` and `regain` beside all else."""
        assert not self.is_busy, "one at a time"
        self._acting = asyncio.create_task(self._act(action))

    async def _act(self, action: Coroutine[Any, Any, None]) -> None:
        try:
            await action
        except Outrun:
            await self._begin_anew()
        except PASSING as error:
            log.warning("a change of owners is tried again", pool=self.name, error=repr(error))
        except Exception:
            log.exception("a change of owners has failed: the pool is loaded anew", pool=self.name)
            await self._begin_anew()
        if self.stage is not Stage.OWNING:
            await asyncio.sleep(RETRY_S)  # else what cannot be done yet would be tried without a pause
        self._around.on_news()

    async def _begin_anew(self) -> None:
        await self._stop_following()  # else it went on with a state that nobody has any more
        self._lose()

    # Following

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                if self.followed is None:
                    self.stage = Stage.LOADING
                    await self._load()
                self.stage = Stage.FOLLOWING
                await self._follow()
            except JournalError as error:
                log.warning("a pool cannot be followed, and is loaded anew", pool=self.name, error=str(error))
                await asyncio.sleep(PAUSE_AFTER_DAMAGE_S if self.is_warm else RETRY_S)
            except PASSING as error:
                log.debug("a pool cannot be loaded now", pool=self.name, error=repr(error))
                await asyncio.sleep(RETRY_S)
            except Exception:  # whatever it is: without a follower the pool would have no next owner
                log.exception("a pool cannot be followed, and is loaded anew", pool=self.name)
                await asyncio.sleep(PAUSE_AFTER_DAMAGE_S)
            self.followed, self.is_warm = None, False

    async def _load(self) -> None:
        around = self._around
        async with around.loads:
            registered = await around.registry.look(self.name)
            if registered is None or registered.key != self.key:
                raise Outdated(f"pool {self.name!r} is no more")
            snapshot = await around.snapshots.load(self.key, registered.snapshot)
            with no_collections():
                self.followed = await asyncio.to_thread(FollowedPool.begin, registered, snapshot)

    async def _follow(self) -> None:
        followed, loop = self.followed, asyncio.get_running_loop()
        assert followed is not None, "it is loaded"
        end = await self.stream.end()
        name = self._around.names.stream(self.key)
        async with StreamReader(self._around.connection, name, after=followed.sequence) as reader:
            self._reader = reader
            try:
                while True:
                    if not self.is_warm and followed.sequence >= end:
                        self.is_warm = True
                        self._around.on_news()
                    messages = await reader.read()
                    until_s = loop.time() + SLICE_S
                    for message in messages:
                        was = followed.holder, followed.heir, followed.is_deleted
                        for _ in followed.steps(message):
                            if loop.time() > until_s:
                                await asyncio.sleep(0)
                                until_s = loop.time() + SLICE_S
                        if was != (followed.holder, followed.heir, followed.is_deleted):
                            self._around.on_news()
            finally:
                self._reader = None

    async def _stop_following(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            await end(following)

    # Owning

    async def take_over(self, how: TakeOver) -> None:
        """Own the pool, if its owner does not any more and no other comes first."""
        followed, members = self.followed, self._around.members
        assert followed is not None, "it is loaded"
        self.stage = Stage.TAKING_OVER
        try:
            holder = followed.holder
            if holder is not None and holder != members.me and not await members.confirm_dead(holder):
                return
            me = members.me
            if not members.lease.holds:
                return
            self.stream.sequence, self.stream.ownership = followed.sequence, followed.ownership + 1
            entry = Entry.take_over(me, self.stream.ownership, followed.line.number)
            try:
                await self.stream.publish(entry)
            except Outrun:  # there is more to read
                if self._reader is not None:
                    self._reader.restart()
                await asyncio.sleep(RETRY_S)
                return
            await self._stop_following()
            if members.is_still(me) and self.followed is followed:
                self._own(followed, me.session, how)
            else:
                self.follow()
        finally:
            if self.stage is Stage.TAKING_OVER:
                self.stage = Stage.FOLLOWING

    def own_new(self) -> None:
        """Own the pool, which this node has just made and written its first entry of."""
        self._open(self._around.members.session, TakeOver.NEW)

    async def regain(self) -> None:
        """Own the pool again, under a new lease, if nobody else has since."""
        followed, members = self.followed, self._around.members
        assert followed is not None, "it was suspended"
        assert self._commit is not None, "likewise"
        if self._commit.settling is not None:
            return  # what was being published is not stored yet, nor refused
        me = members.me
        followed.sequence = self.stream.sequence
        self.stream.ownership += 1
        await self.stream.publish(Entry.take_over(me, self.stream.ownership, followed.line.number))
        followed.ownership, followed.sequence = self.stream.ownership, self.stream.sequence
        if members.is_still(me):
            self._own(followed, me.session, TakeOver.REGAINED)

    def _own(self, followed: FollowedPool, session: Session, how: TakeOver) -> None:
        around = self._around
        self._open(session, how)
        around.clock.not_before(followed.pool.now_ms)
        around.pools.adopt([followed.recovered()], around.clock.now_ms())
        self.followed = None

    def _open(self, session: Session, how: TakeOver) -> None:
        around = self._around
        self.stage, self._session = Stage.OWNING, session
        self._commit = OwnerCommit(
            self.stream, lambda: around.members.holds(session), lambda _: self._lose(), around.journal_figures
        )
        around.journal.open(self.name, self.key, self._commit)
        around.figures.took_over(how)
        log.info("this node owns a pool", pool=self.name, ownership=self.stream.ownership, how=how.value)

    @property
    def has_lapsed(self) -> bool:
        """Whether it owns the pool under a lease that is over."""
        return self.stage is Stage.OWNING and not self._around.members.holds(self._session)

    def suspend(self) -> None:
        """The lease is over: tell nobody anything, and go on with what is being published."""
        assert self._commit is not None, "it owns the pool"
        log.warning("this node answers for a pool no more", pool=self.name)
        self.followed = self._release()
        self._commit.withdraw()
        self.stage = Stage.SUSPENDED

    async def hand_over(self, heir: str) -> None:
        """Let ``heir`` own the pool: take no more calls, write all down, say so, and follow."""
        assert self._commit is not None, "it owns the pool"
        log.info("a pool is handed over", pool=self.name, heir=heir)
        self.stage = Stage.LEAVING
        self.followed = followed = self._release(keeps_journal=True)
        commit = self._commit
        while commit.settling is not None:
            await asyncio.shield(commit.settling)
        if commit.has_failed:
            return
        await self.stream.publish(Entry.hand_over(heir, self.stream.ownership, followed.line.number))
        self._close_journal()
        followed.sequence, followed.ownership = self.stream.sequence, self.stream.ownership
        followed.holder, followed.heir = None, heir
        self.follow()

    async def end(self, line: Line) -> None:
        """Write down that the pool is no more; it takes no calls already. Raises Outrun."""
        assert self._commit is not None, "it owns the pool"
        self.stage = Stage.LEAVING
        commit = self._commit
        while commit.settling is not None:
            await asyncio.shield(commit.settling)
        commit.check_sound()
        entry = Entry(kind=EntryKind.DELETED, ownership=self.stream.ownership, number=line.number)
        await self.stream.publish(entry)
        self._close_journal()

    def _lose(self) -> None:
        """Another owns the pool: what this node has done last has not happened."""
        if self._is_over:
            return
        log.warning("this node has lost a pool", pool=self.name)
        self._around.figures.lost_pool()
        if self.stage is Stage.OWNING:
            self._release()
        self._close_journal()
        self.followed, self.is_warm = None, False
        self.stage = Stage.LOADING
        if self._following is None:
            self.follow()
        self._around.on_news()

    def _close_journal(self) -> None:
        if self._commit is not None:
            self._around.journal.close(self.name, self.key, self._commit)

    def _release(self, *, keeps_journal: bool = False) -> FollowedPool:
        """Take the pool from those that are served."""
        around = self._around
        owned = around.pools.release(self.name, moving())
        if not keeps_journal:
            self._close_journal()
        assert owned.line is not None, "it is written to a stream"
        return FollowedPool(
            name=self.name,
            pool=owned.pool,
            plan=owned.plan,
            line=owned.line,
            sequence=self.stream.sequence,
            ownership=self.stream.ownership,
            holder=around.members.me,
        )
