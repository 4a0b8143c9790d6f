"""What this node is to one pool: it has it warm, or owns it, or is on its way from one to the other."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from blockyard.server.cluster.connection import PASSING, RETRY_S
from blockyard.server.cluster.entries import Entry, EntryKind, Session
from blockyard.server.cluster.figures import TakeOver
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.follower import Follower
from blockyard.server.cluster.journal import OwnerCommit
from blockyard.server.cluster.pool_stream import Outrun, PoolStream
from blockyard.server.cluster.refusals import moving
from blockyard.server.cluster.stage import Stage
from blockyard.server.cluster.surroundings import Surroundings
from blockyard.server.cluster.tasks import end
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line

log = structlog.get_logger("blockyard.cluster")


class PoolRole:
    """Of one pool; begins with `follow`, or with `own_new` where the pool is new.

    Args:
        name: The pool's.
        key: Of its stream.
        around: What the node has.

    Attributes:
        name: The pool's.
        key: Of its stream.
        stage: Where this node is with it.
        stream: To write to, while it owns the pool.
    """

    def __init__(self, name: str, key: PoolKey, around: Surroundings) -> None:
        self.name = name
        self.key = key
        self._around = around
        self._follower = Follower(name, key, around, self._enter)
        self._acting: asyncio.Task[None] | None = None
        self._commit: OwnerCommit | None = None
        self._session = Session("")
        self._is_over = False
        self.stage = Stage.LOADING
        self.stream = PoolStream(around.connection, around.names, key)

    @property
    def is_busy(self) -> bool:
        """Whether it is about to change what it is."""
        return self._acting is not None and not self._acting.done()

    @property
    def followed(self) -> FollowedPool | None:
        """Its state; None while it loads, and while this node answers for it."""
        return self._follower.followed

    @property
    def is_warm(self) -> bool:
        """See `Follower.is_warm`."""
        return self._follower.is_warm

    @property
    def lag(self) -> int | None:
        """See `Follower.lag`."""
        return self._follower.lag

    @property
    def ownership(self) -> int:
        """The latest number that it knows of."""
        if self.stage in (Stage.OWNING, Stage.SUSPENDED, Stage.LEAVING):
            return self.stream.ownership
        return 0 if self.followed is None else self.followed.ownership

    def follow(self) -> None:
        """Begin to follow."""
        self._follower.start()

    def _enter(self, stage: Stage) -> None:
        self.stage = stage

    async def stop(self) -> None:
        """Be nothing to the pool any more: what it did not tell others of is lost."""
        self._is_over = True
        await self._follower.stop()
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
        self._around.news.set()

    async def _begin_anew(self) -> None:
        await self._follower.stop()  # else it went on with a state that nobody has any more
        self._lose()

    async def take_over(self, how: TakeOver) -> None:
        """Own the pool, if its owner does not any more and no other comes first."""
        followed, heartbeat, members = self.followed, self._around.heartbeat, self._around.members
        assert followed is not None, "it is loaded"
        self.stage = Stage.TAKING_OVER
        try:
            holder = followed.holder
            if holder is not None and holder != heartbeat.me and not await members.confirm_dead(holder):
                return
            me = heartbeat.me
            if not heartbeat.lease.holds:
                return
            self.stream.sequence, self.stream.ownership = followed.sequence, followed.ownership + 1
            entry = Entry.take_over(me, self.stream.ownership, followed.line.number)
            try:
                await self.stream.publish(entry)
            except Outrun:  # there is more to read
                self._follower.read_on()
                await asyncio.sleep(RETRY_S)
                return
            await self._follower.stop()
            if heartbeat.is_still(me) and self.followed is followed:
                self._own(followed, me.session, how)
            else:
                self.follow()
        finally:
            if self.stage is Stage.TAKING_OVER:
                self.stage = Stage.FOLLOWING

    def own_new(self) -> None:
        """Own the pool, which this node has just made and written its first entry of."""
        self._open(self._around.heartbeat.session, TakeOver.NEW)

    async def regain(self) -> None:
        """Own the pool again, under a new lease, if nobody else has since."""
        followed, heartbeat = self.followed, self._around.heartbeat
        assert followed is not None, "it was suspended"
        assert self._commit is not None, "likewise"
        if self._commit.settling is not None:
            return  # what was being published is not stored yet, nor refused
        me = heartbeat.me
        followed.sequence = self.stream.sequence
        self.stream.ownership += 1
        await self.stream.publish(Entry.take_over(me, self.stream.ownership, followed.line.number))
        followed.ownership, followed.sequence = self.stream.ownership, self.stream.sequence
        if heartbeat.is_still(me):
            self._own(followed, me.session, TakeOver.REGAINED)

    def _own(self, followed: FollowedPool, session: Session, how: TakeOver) -> None:
        around = self._around
        self._open(session, how)
        around.clock.not_before(followed.pool.now_ms)
        around.pools.adopt([followed.recovered()], around.clock.now_ms())
        self._follower.followed = None

    def _open(self, session: Session, how: TakeOver) -> None:
        around = self._around
        self.stage, self._session = Stage.OWNING, session
        self._commit = OwnerCommit(
            self.stream,
            lambda: around.heartbeat.holds(session),
            lambda _: self._lose(),
            around.journal_figures,
        )
        around.journal.open(self.name, self.key, self._commit)
        around.figures.took_over(how)
        log.info("this node owns a pool", pool=self.name, ownership=self.stream.ownership, how=how.value)

    @property
    def has_lapsed(self) -> bool:
        """Whether it owns the pool under a lease that is over."""
        return self.stage is Stage.OWNING and not self._around.heartbeat.holds(self._session)

    def suspend(self) -> None:
        """The lease is over: tell nobody anything, and go on with what is being published."""
        assert self._commit is not None, "it owns the pool"
        log.warning("this node answers for a pool no more", pool=self.name)
        self._follower.followed = self._release()
        self._commit.withdraw()
        self.stage = Stage.SUSPENDED

    async def hand_over(self, heir: str) -> None:
        """Let ``heir`` own the pool: take no more calls, write all down, say so, and follow."""
        log.info("a pool is handed over", pool=self.name, heir=heir)
        self.stage = Stage.LEAVING
        self._follower.followed = followed = self._release(keeps_journal=True)
        if (await self._settled()).has_failed:
            return
        await self.stream.publish(Entry.hand_over(heir, self.stream.ownership, followed.line.number))
        self._close_journal()
        followed.sequence, followed.ownership = self.stream.sequence, self.stream.ownership
        followed.holder, followed.heir = None, heir
        self.follow()

    async def end(self, line: Line) -> None:
        """Write down that the pool is no more; it takes no calls already. Raises Outrun."""
        self.stage = Stage.LEAVING
        (await self._settled()).check_sound()
        entry = Entry(kind=EntryKind.DELETED, ownership=self.stream.ownership, number=line.number)
        await self.stream.publish(entry)
        self._close_journal()

    async def _settled(self) -> OwnerCommit:
        """Its commit, once all that was applied is written, or never will be."""
        commit = self._commit
        assert commit is not None, "it owns the pool"
        while commit.settling is not None:
            await asyncio.shield(commit.settling)
        return commit

    def _lose(self) -> None:
        """Another owns the pool: what this node has done last has not happened."""
        if self._is_over:
            return
        log.warning("this node has lost a pool", pool=self.name)
        self._around.figures.lost_pool()
        if self.stage is Stage.OWNING:
            self._release()
        self._close_journal()
        self.stage = Stage.LOADING
        self._follower.forget()
        self._around.news.set()

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
            holder=around.heartbeat.me,
        )
