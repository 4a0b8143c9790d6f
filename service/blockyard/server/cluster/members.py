"""The nodes of a cluster: this one keeps its lease among them, and finds out which of the others are live.

Each node has a key in a bucket, which it sets anew again and again by compare and set. Who sees that another
is silent for longer than a lease deletes its key, likewise by compare and set: either the silent one was
heard after all, or nothing that it sends later is taken. So whoever was found dead knows that it has no lease
any more, and its clock has told it so before.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from blockyard.server.cluster.bucket import Bucket, NotOurs, Raced, Stored
from blockyard.server.cluster.connection import PASSING
from blockyard.server.cluster.entries import Holder, Session
from blockyard.server.cluster.lease import SLACK, Lease, boot_time_ns
from blockyard.server.cluster.tasks import all_of

log = structlog.get_logger("blockyard.cluster")

BEATS_A_LEASE = 4
LEAVE_S = 2.0
"""How long giving a lease up may take: else it runs out."""
RETRY_NS = 100_000_000
"""When the key of a silent node that could not be deleted is tried again."""
TTL_LEASES = 5
"""After so many leases the key of a dead node is forgotten, should nobody delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWord:
    """What a node says of itself with each heartbeat.

    Attributes:
        url: Where it is reached.
        session: Under which lease.
        is_leaving: Whether it hands its pools over, and takes no others.
        num_owned: Pools that it owns.
        num_followed: Pools that it holds warm for others.
    """

    url: str
    session: Session
    is_leaving: bool = False
    num_owned: int = 0
    num_followed: int = 0

    def encode(self) -> bytes:
        """As it is stored."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def decode(cls, stored: bytes) -> "NodeWord":
        """The inverse; fields that it does not know are passed over. Raises NotOurs."""
        try:
            told = json.loads(stored)
            return cls(**{name: told[name] for name in cls.__slots__ if name in told})
        except (ValueError, TypeError) as error:
            raise NotOurs(f"no word of a node: {error}") from error


@dataclass(slots=True)
class Member:
    """Another node, or this one, as it was heard last.

    Attributes:
        name: Its name.
        word: What it said; None where its key was deleted.
        revision: Of its key.
        heard_ns: When that came, by the boot-time clock.
        tried_ns: When its key could not be deleted.
    """

    name: str
    word: NodeWord | None
    revision: int
    heard_ns: int
    tried_ns: int = 0


class Members:
    """All nodes that were ever heard of; this one has no lease at first.

    Args:
        bucket: Of nodes.
        name: This node's.
        url: Where it is reached.
        lease: This node's, over at first.
        counts: How many pools it owns and follows.
        on_change: Called where nodes have come, gone or said that they leave.
        on_lapse: Called where this node's lease is over before its time.

    Attributes:
        lease: This node's.
        session: This node's latest.
        is_leaving: Whether this node does.
    """

    def __init__(
        self,
        bucket: Bucket,
        name: str,
        url: str,
        lease: Lease,
        *,
        counts: Callable[[], tuple[int, int]],
        on_change: Callable[[], None],
        on_lapse: Callable[[], None],
    ) -> None:
        self._bucket = bucket
        self._name = name
        self._url = url
        self._lease_ms = lease.duration_ms
        self._silent_ns = int(lease.duration_ms * 1_000_000 * SLACK)
        self._within_s = max(lease.duration_ms / 1000 / BEATS_A_LEASE, 0.25)
        self._began_ns = self._stored_ns = boot_time_ns()
        self._counts = counts
        self._on_change = on_change
        self._on_lapse = on_lapse
        self._members: dict[str, Member] = {}
        self._live: dict[str, NodeWord] = {}
        self._revision = 0
        self._own_sessions: set[Session] = set()
        self._beating = asyncio.Event()
        self._setting = asyncio.Lock()
        self.lease = lease
        self.session = Session("")
        self.is_leaving = False
        self._has_left = False

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    @property
    def me(self) -> Holder:
        """This node under its lease."""
        return Holder(self._name, self.session)

    def holds(self, session: Session) -> bool:
        """Whether this node has its lease, and not a later one than that of ``session``."""
        return self.lease.holds and self.session == session

    def is_still(self, holder: Holder) -> bool:
        """Whether ``holder``, which was this node under its lease, is that yet."""
        return self.holds(holder.session)

    @property
    def live(self) -> dict[str, NodeWord]:
        """The nodes that may own pools, by name; leaving ones among them."""
        return self._live

    def is_dead(self, holder: Holder) -> bool:
        """Whether ``holder`` seems to answer nobody any more: its node has no lease, or another one."""
        if holder.node == self._name:
            return holder.session != self.session
        word = self._live.get(holder.node)
        return word is None or word.session != holder.session

    async def confirm_dead(self, holder: Holder) -> bool:
        """Whether that is so: by what the bucket's leader has, once it has taken a heartbeat of this node.

        Raises:
            TimeoutError, nats.errors.Error: It does not answer now.
        """
        if holder.node != self._name:
            async with asyncio.timeout(self._within_s):
                await self._beat(behind_ns=boot_time_ns())
                stored = await self._bucket.get(holder.node)
            if stored is not None:
                self._hear(stored)
            elif not self._has_vanished(holder.node):
                return False
        return self.lease.holds and self.is_dead(holder)

    def _has_vanished(self, node: str) -> bool:
        """Whether a node that has no key has no lease: keys run out by the clock of a server of NATS."""
        member = self._members.get(node)
        if member is not None and member.word is None:
            return True
        heard_ns = self._began_ns if member is None else member.heard_ns
        if boot_time_ns() - heard_ns <= self._silent_ns:
            return False
        if member is not None:
            self._forget(member)
        return True

    def url_of(self, node: str) -> str | None:
        """Where a live node is reached."""
        word = self._live.get(node)
        return None if word is None else word.url

    async def run(self) -> None:
        """Keep the lease and follow the others, for ever."""
        await all_of(self._beat_for_ever(), self._follow(), self._watch_silence())

    async def leave(self) -> None:
        """Give the lease up for good: others may take over at once."""
        self._has_left = True
        self.lease.end()
        try:
            async with asyncio.timeout(LEAVE_S), self._setting:
                stored = await self._bucket.get(self._name)
                if stored is not None and _session_of(stored) == self.session:
                    await self._bucket.delete(self._name, stored.revision)
        except (*PASSING, Raced) as error:
            log.info("this node's key is left to run out", error=repr(error))

    def beat_soon(self) -> None:
        """Send the next heartbeat now."""
        self._beating.set()

    async def _beat_for_ever(self) -> None:
        beat_s = self._lease_ms / 1000 / BEATS_A_LEASE
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            self._beating.clear()
            try:
                async with asyncio.timeout(self._within_s):
                    await self._beat()
            except PASSING as error:
                log.warning("a heartbeat was not stored", error=repr(error))
            wait_s = max(0.01, beat_s - (loop.time() - began_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._beating.wait()

    async def _beat(self, behind_ns: int | None = None) -> None:
        """Set this node's key anew; under a new lease, where the last one is over.

        Args:
            behind_ns: A heartbeat that was sent after this and stored will do.
        """
        async with self._setting:
            is_done = behind_ns is not None and self._stored_ns >= behind_ns
            if not (self._has_left or is_done):
                await self._set_own_key()

    async def _set_own_key(self) -> None:
        if not self.lease.holds:
            self._lapse()
            await self._begin()
            return
        num_owned, num_followed = self._counts()
        word = NodeWord(
            url=self._url,
            session=self.session,
            is_leaving=self.is_leaving,
            num_owned=num_owned,
            num_followed=num_followed,
        )
        sent_ns = boot_time_ns()
        try:
            self._revision = await self._bucket.update(self._name, word.encode(), self._revision)
        except Raced:
            await self._find_own_key()
        else:
            self.lease.renew(sent_ns)
            self._stored_ns = sent_ns

    async def _find_own_key(self) -> None:
        """An earlier heartbeat was stored without being acknowledged; or this node was found dead."""
        stored = await self._bucket.get(self._name)
        if stored is not None and _session_of(stored) == self.session:
            self._revision = stored.revision
            self._beating.set()  # at once
        else:
            log.warning("another node has found this one dead")
            self._lapse()

    def _lapse(self) -> None:
        """The lease is over; there will be another."""
        self.lease.end()
        if self.session:
            self.session = Session("")
            self._on_lapse()
            log.warning("this node's lease is over: it answers for no pool until it has another")
            self._on_change()

    async def _begin(self) -> None:
        """Have a lease, unless another process has one under this node's name."""
        stored = await self._bucket.get(self._name)
        session = Session(secrets.token_hex(8))
        word = NodeWord(url=self._url, session=session, is_leaving=self.is_leaving).encode()
        sent_ns = boot_time_ns()
        is_free = stored is None or stored.value is None
        is_own = stored is not None and _session_of(stored) in self._own_sessions
        if is_own or is_free:
            self._own_sessions.add(session)
        try:
            if is_own and stored is not None:
                self._revision = await self._bucket.update(self._name, word, stored.revision)
            elif is_free:
                self._revision = await self._bucket.create(self._name, word)
        except Raced:
            is_free = is_own = False
        if not (is_free or is_own):
            log.info("the last lease under this node's name is waited for", node=self._name)
            return
        self.session = session
        self.lease.renew(sent_ns)
        self._stored_ns = sent_ns
        log.info("this node has a lease", node=self._name, session=session)
        self._on_change()

    async def _follow(self) -> None:
        async for values in self._bucket.follow():
            for stored in values:
                self._hear(stored)

    def _hear(self, stored: Stored) -> None:
        known = self._members.get(stored.name)
        if known is not None and stored.revision <= known.revision:
            return
        try:
            word = None if stored.value is None else NodeWord.decode(stored.value)
        except NotOurs as error:
            log.warning("what stands for a node is passed over", node=stored.name, error=str(error))
            return
        self._members[stored.name] = Member(stored.name, word, stored.revision, boot_time_ns())
        self._review()

    def _review(self) -> None:
        live = {each.name: each.word for each in self._members.values() if each.word is not None}
        changed = {name: (word.session, word.is_leaving) for name, word in live.items()} != {
            name: (word.session, word.is_leaving) for name, word in self._live.items()
        }
        self._live = live
        if changed:
            log.info("nodes", live=sorted(live))
            self._on_change()

    def _forget(self, member: Member) -> None:
        """Its key is no more."""
        member.word = None
        self._review()

    async def _watch_silence(self) -> None:
        """Delete the keys of those that are silent for longer than a lease."""
        while True:
            await asyncio.sleep(min(0.05, self._lease_ms / 1000 / BEATS_A_LEASE))
            now_ns = boot_time_ns()
            for member in list(self._members.values()):
                is_self = member.name == self._name and self.lease.holds
                is_silent = now_ns - member.heard_ns > self._silent_ns and now_ns - member.tried_ns > RETRY_NS
                if member.word is not None and is_silent and not is_self:
                    await self._revoke(member)

    async def _revoke(self, member: Member) -> None:
        try:
            async with asyncio.timeout(1.0):
                try:
                    await self._bucket.delete(member.name, member.revision)
                    log.warning("a node is silent, and found dead", node=member.name)
                except Raced:  # heard of meanwhile, or others were faster
                    stored = await self._bucket.get(member.name)
                    if stored is None:
                        self._forget(member)
                    else:
                        self._hear(stored)
                else:
                    self._forget(member)
        except PASSING as error:
            log.debug("a silent node's key cannot be deleted", node=member.name, error=repr(error))
            member.tried_ns = boot_time_ns()


def _session_of(stored: Stored) -> Session | None:
    try:
        return None if stored.value is None else NodeWord.decode(stored.value).session
    except NotOurs:
        return None
