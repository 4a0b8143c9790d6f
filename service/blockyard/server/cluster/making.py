"""Pools that come and go in a cluster: registered, with a stream each."""

import asyncio
import secrets
from typing import TYPE_CHECKING

import structlog

from blockyard.core.config import PoolConfig
from blockyard.core.errors import NotReady
from blockyard.server.cluster.bucket import NotOurs, Raced
from blockyard.server.cluster.connection import PASSING
from blockyard.server.cluster.entries import Entry
from blockyard.server.cluster.journal import moving
from blockyard.server.cluster.pool_role import PoolRole, Stage
from blockyard.server.cluster.pool_stream import Outrun, PoolStream
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line
from blockyard.server.journal.pool_state import encode_definition

if TYPE_CHECKING:
    from blockyard.server.cluster.node import ClusterNode, Joined

log = structlog.get_logger("blockyard.cluster")

WITHIN_S = 10.0
KEY_BITS = 62
RETRY_AFTER_MS = 100


class Maker:
    """Makes and deletes the pools of ``node``."""

    def __init__(self, node: "ClusterNode") -> None:
        self._node = node

    async def create(self, name: str, config: PoolConfig, request: bytes | None) -> Line:
        """Make a pool that this node owns: its stream, then its place in the registry.

        Raises:
            NotReady: It could not be made, or was made by another node just now.
        """
        self._node.journal.check_lease()
        joined = self._joined()
        key = PoolKey(secrets.randbits(KEY_BITS))
        role = PoolRole(name, key, joined.around)
        if joined.registry.find(name) is not None:
            raise moving()  # it was here when it was asked for
        me = joined.members.me
        role.stage = Stage.MAKING
        earlier = self._node.roles.get(name)
        self._node.roles[name] = role
        try:
            if earlier is not None:  # it followed a pool of this name that was deleted
                await earlier.stop()
            await self._make(joined, role, encode_definition(config, request))
        except BaseException:
            self._forget(role)
            raise
        if self._node.roles.get(name) is not role or not joined.members.is_still(me):
            self._forget(role)
            raise moving()  # it is there, and has an owner soon
        role.own_new()
        return Line(key)

    def _forget(self, role: PoolRole) -> None:
        if self._node.roles.get(role.name) is role:
            del self._node.roles[role.name]
        self._node.note()

    async def _make(self, joined: "Joined", role: PoolRole, definition: bytes) -> None:
        """Its stream, this node's entry in it, and its place in the registry. Raises NotReady."""
        name, me = role.name, joined.members.me
        try:
            async with asyncio.timeout(WITHIN_S):
                await role.stream.create(self._node.settings.num_replicas)
                role.stream.ownership = ownership = await joined.registry.first_ownership(name)
                await role.stream.publish(Entry.take_over(me, ownership, number=0))
                registered = RegisteredPool(
                    name=name,
                    key=role.key,
                    definition=definition,
                    node=self._node.settings.node,
                    ownership=ownership,
                )
                await joined.registry.create(registered)
        except Raced as error:
            self._node.do(role.stream.delete())
            raise NotReady(
                f"another has just made a pool of the name {name!r}: try again",
                {"retry_after_ms": RETRY_AFTER_MS},
            ) from error
        except (*PASSING, Outrun, NotOurs) as error:
            log.warning("a pool could not be made", pool=name, error=repr(error))
            raise moving() from error

    async def drop(self, name: str, line: Line) -> None:
        """Delete a pool that this node owns, and that takes no calls any more.

        Raises:
            NotReady: It could not be deleted.
        """
        joined, role = self._joined(), self._node.roles.get(name)
        if role is None:
            raise moving()  # the node leaves
        try:
            async with asyncio.timeout(WITHIN_S):
                await role.end(line)
                registered = await joined.registry.look(name)
                if registered is not None and registered.key == role.key:
                    await self.bury(registered, role.ownership)
        except (*PASSING, Outrun) as error:
            log.warning("a pool could not be deleted", pool=name, error=repr(error))
            raise moving() from error
        finally:
            await role.stop()
            self._forget(role)

    async def bury(self, pool: RegisteredPool, ownership: int) -> None:
        """Forget a pool of which its stream says that the owner of this number has deleted it.

        Raises what NATS says against it.
        """
        joined = self._joined()
        await joined.registry.delete(pool, ownership)
        await PoolStream(joined.connection, self._node.names, pool.key).delete()
        await joined.around.snapshots.delete(pool.key, pool.snapshot)
        log.info("a pool is deleted", pool=pool.name)

    def _joined(self) -> "Joined":
        joined = self._node.joined
        if joined is None:
            raise moving()
        return joined
