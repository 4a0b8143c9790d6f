"""A node's heartbeat: it sets its key in the bucket of nodes anew, again and again, and so keeps its lease.

It does so by compare and set, so that another can find it dead by deleting its key: nothing that this node
sends later is taken then, and it knows that it has no lease any more.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable

import structlog

from blockyard.server.cluster.bucket import Bucket, NotOurs, Raced, Stored
from blockyard.server.cluster.connection import PASSING
from blockyard.server.cluster.entries import Holder, Session
from blockyard.server.cluster.lease import Lease, boot_time_ns
from blockyard.server.cluster.node_word import NodeWord

log = structlog.get_logger("blockyard.cluster")

BEATS_A_LEASE = 4
LEAVE_S = 2.0
"""How long giving a lease up may take: else it runs out."""


class Heartbeat:
    """Of one node, which has no lease at first.

    Args:
        bucket: Of nodes.
        name: This node's.
        url: Where it is reached.
        lease: This node's, over at first.
        counts: How many pools it owns and follows.
        on_change: Called where it has a lease, or has none any more.
        on_lapse: Called where its lease is over before its time.

    Attributes:
        name: As given.
        lease: As given.
        session: Its latest; empty between two leases.
        is_leaving: Whether it says that it leaves.
        within_s: How long NATS is waited for with one.
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
        self._url = url
        self._counts = counts
        self._on_change = on_change
        self._on_lapse = on_lapse
        self._revision = 0
        self._stored_ns = boot_time_ns()
        self._own_sessions: set[Session] = set()
        self._due = asyncio.Event()
        self._setting = asyncio.Lock()
        self._has_left = False
        self.name = name
        self.lease = lease
        self.session = Session("")
        self.is_leaving = False
        self.within_s = max(lease.duration_ms / 1000 / BEATS_A_LEASE, 0.25)

    @property
    def me(self) -> Holder:
        """This node under its lease."""
        return Holder(self.name, self.session)

    def holds(self, session: Session) -> bool:
        """Whether this node has its lease, and not a later one than that of ``session``."""
        return self.lease.holds and self.session == session

    def is_still(self, holder: Holder) -> bool:
        """Whether ``holder``, which was this node under its lease, is that yet."""
        return self.holds(holder.session)

    async def run(self) -> None:
        """Keep the lease, for ever."""
        beat_s = self.lease.duration_ms / 1000 / BEATS_A_LEASE
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            self._due.clear()
            try:
                async with asyncio.timeout(self.within_s):
                    await self.beat()
            except PASSING as error:
                log.warning("a heartbeat was not stored", error=repr(error))
            wait_s = max(0.01, beat_s - (loop.time() - began_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._due.wait()

    async def beat(self, behind_ns: int | None = None) -> None:
        """Set this node's key anew; under a new lease, where the last one is over.

        Args:
            behind_ns: A heartbeat that was sent after this and stored will do.

        Raises what NATS says against it.
        """
        async with self._setting:
            is_done = behind_ns is not None and self._stored_ns >= behind_ns
            if not (self._has_left or is_done):
                await self._set_own_key()

    def beat_soon(self) -> None:
        """Send the next heartbeat now."""
        self._due.set()

    async def leave(self) -> None:
        """Give the lease up for good: others may take over at once."""
        self._has_left = True
        self.lease.end()
        try:
            async with asyncio.timeout(LEAVE_S), self._setting:
                stored = await self._bucket.get(self.name)
                if stored is not None and _session_of(stored) == self.session:
                    await self._bucket.delete(self.name, stored.revision)
        except (*PASSING, Raced) as error:
            log.info("this node's key is left to run out", error=repr(error))

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
            self._revision = await self._bucket.update(self.name, word.encode(), self._revision)
        except Raced:
            await self._find_own_key()
        else:
            self.lease.renew(sent_ns)
            self._stored_ns = sent_ns

    async def _find_own_key(self) -> None:
        """An earlier heartbeat was stored without being acknowledged; or this node was found dead."""
        stored = await self._bucket.get(self.name)
        if stored is not None and _session_of(stored) == self.session:
            self._revision = stored.revision
            self._due.set()  # at once
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
        stored = await self._bucket.get(self.name)
        session = Session(secrets.token_hex(8))
        word = NodeWord(url=self._url, session=session, is_leaving=self.is_leaving).encode()
        sent_ns = boot_time_ns()
        is_free = stored is None or stored.value is None
        is_own = stored is not None and _session_of(stored) in self._own_sessions
        if is_own or is_free:
            self._own_sessions.add(session)
        try:
            if is_own and stored is not None:
                self._revision = await self._bucket.update(self.name, word, stored.revision)
            elif is_free:
                self._revision = await self._bucket.create(self.name, word)
        except Raced:
            is_free = is_own = False
        if not (is_free or is_own):
            log.info("the last lease under this node's name is waited for", node=self.name)
            return
        self.session = session
        self.lease.renew(sent_ns)
        self._stored_ns = sent_ns
        log.info("this node has a lease", node=self.name, session=session)
        self._on_change()


def _session_of(stored: Stored) -> Session | None:
    try:
        return None if stored.value is None else NodeWord.decode(stored.value).session
    except NotOurs:
        return None
