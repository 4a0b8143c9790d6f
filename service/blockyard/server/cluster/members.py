"""The nodes of a cluster, as one of them hears them, and which of them are live.

Each node has a key in a bucket, which it sets anew again and again: see `Heartbeat`. Who sees that another is
silent for longer than a lease deletes its key by compare and set: either the silent one was heard after all,
or nothing that it sends later is taken. So whoever was found dead knows that it has no lease any more, and
its clock has told it so before.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from blockyard.server.cluster.bucket import Bucket, NotOurs, Raced, Stored
from blockyard.server.cluster.connection import PASSING
from blockyard.server.cluster.entries import Holder
from blockyard.server.cluster.heartbeat import BEATS_A_LEASE, Heartbeat
from blockyard.server.cluster.lease import SLACK, boot_time_ns
from blockyard.server.cluster.node_word import NodeWord
from blockyard.server.cluster.rendezvous import candidates
from blockyard.server.cluster.tasks import all_of

log = structlog.get_logger("blockyard.cluster")

RETRY_NS = 100_000_000
"""When the key of a silent node that could not be deleted is tried again."""


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
    """All nodes that were ever heard of, this one among them.

    Args:
        bucket: Of nodes.
        heartbeat: This node's.
        on_change: Called where nodes have come, gone or said that they leave.
    """

    def __init__(self, bucket: Bucket, heartbeat: Heartbeat, on_change: Callable[[], None]) -> None:
        self._bucket = bucket
        self._heartbeat = heartbeat
        self._on_change = on_change
        self._silent_ns = int(heartbeat.lease.duration_ms * 1_000_000 * SLACK)
        self._began_ns = boot_time_ns()
        self._members: dict[str, Member] = {}
        self._live: dict[str, NodeWord] = {}
        self._orders: dict[str, list[str]] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    @property
    def live(self) -> dict[str, NodeWord]:
        """The nodes that may own pools, by name; leaving ones among them."""
        return self._live

    @property
    def staying(self) -> list[str]:
        """The live nodes that do not leave."""
        return [name for name, word in self._live.items() if not word.is_leaving]

    def order(self, pool: str) -> list[str]:
        """The candidates for the pool of this name: of the nodes that stay, the one to own it first."""
        order = self._orders.get(pool)
        if order is None:
            order = self._orders[pool] = candidates(pool, self.staying)
        return order

    def is_dead(self, holder: Holder) -> bool:
        """Whether ``holder`` seems to answer nobody any more: its node has no lease, or another one."""
        if holder.node == self._heartbeat.name:
            return holder != self._heartbeat.me
        word = self._live.get(holder.node)
        return word is None or word.session != holder.session

    async def confirm_dead(self, holder: Holder) -> bool:
        """Whether that is so: by what the bucket's leader has, once it has taken a heartbeat of this node.

        Raises:
            TimeoutError, nats.errors.Error: It does not answer now.
        """
        if holder.node != self._heartbeat.name:
            async with asyncio.timeout(self._heartbeat.within_s):
                await self._heartbeat.beat(behind_ns=boot_time_ns())
                stored = await self._bucket.get(holder.node)
            if stored is not None:
                self._hear(stored)
            elif not self._has_vanished(holder.node):
                return False
        return self._heartbeat.lease.holds and self.is_dead(holder)

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
        """Follow the others, for ever."""
        await all_of(self._follow(), self._watch_silence())

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
            self._orders.clear()
            log.info("nodes", live=sorted(live))
            self._on_change()

    def _forget(self, member: Member) -> None:
        """Its key is no more."""
        member.word = None
        self._review()

    async def _watch_silence(self) -> None:
        """Delete the keys of those that are silent for longer than a lease."""
        lease = self._heartbeat.lease
        while True:
            await asyncio.sleep(min(0.05, lease.duration_ms / 1000 / BEATS_A_LEASE))
            now_ns = boot_time_ns()
            for member in list(self._members.values()):
                is_self = member.name == self._heartbeat.name and lease.holds
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
