"""Pools that come and go in a cluster: registered, with a stream each."""

import asyncio
import secrets

import structlog

from blockyard.core.config import PoolConfig
from blockyard.server.cluster.bucket import NotOurs, Raced
from blockyard.server.cluster.connection import PASSING
from blockyard.server.cluster.entries import Entry, Holder
from blockyard.server.cluster.pool_role import PoolRole
from blockyard.server.cluster.pool_stream import Outrun, PoolStream
from blockyard.server.cluster.refusals import made_by_another, moving
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.cluster.roles import Roles
from blockyard.server.cluster.stage import Stage
from blockyard.server.cluster.surroundings import Surroundings
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.line import Line
from blockyard.server.journal.pool_state import encode_definition

log = structlog.get_logger("blockyard.cluster")

WITHIN_S = 10.0
KEY_BITS = 62


class PoolMaker:
    """Makes and deletes pools that one node owns.

    Args:
        around: What the node has.
        roles: What it is to pools.
    """

    def __init__(self, around: Surroundings, roles: Roles) -> None:
        self._around = around
        self._roles = roles

    async def create(self, name: str, config: PoolConfig, request: bytes | None) -> Line:
        """Make a pool that this node owns: its stream, then its place in the registry.

        Raises:
            NotReady: It could not be made, or was made by another node just now.
        """
        around = self._around
        around.journal.check_lease()
        if around.registry.find(name) is not None:
            raise moving()  # it was here when it was asked for
        role = PoolRole(name, PoolKey(secrets.randbits(KEY_BITS)), around)
        role.stage = Stage.MAKING
        me = around.heartbeat.me
        earlier = self._roles.get(name)
        self._roles[name] = role
        try:
            if earlier is not None:  # it followed a pool of this name that was deleted
                await earlier.stop()
            await self._make(role, me, encode_definition(config, request))
        except BaseException:
            self._forget(role)
            raise
        role.own_new()
        return Line(role.key)

    def _forget(self, role: PoolRole) -> None:
        self._roles.forget(role)
        self._around.news.set()

    async def _make(self, role: PoolRole, me: Holder, definition: bytes) -> None:
        """Its stream, this node's entry in it, and its place in the registry. Raises NotReady."""
        around, name = self._around, role.name
        try:
            async with asyncio.timeout(WITHIN_S):
                await role.stream.create(around.settings.num_replicas)
                role.stream.ownership = ownership = await around.registry.first_ownership(name)
                await role.stream.publish(Entry.take_over(me, ownership, number=0))
                registered = RegisteredPool(
                    name=name, key=role.key, definition=definition, node=me.node, ownership=ownership
                )
                await around.registry.create(registered)
        except Raced as error:
            around.chores.do(role.stream.delete())
            raise made_by_another(name) from error
        except (*PASSING, Outrun, NotOurs) as error:
            log.warning("a pool could not be made", pool=name, error=repr(error))
            raise moving() from error
        if self._roles.get(name) is not role or not around.heartbeat.is_still(me):
            raise moving()  # it is there, and has an owner soon

    async def drop(self, name: str, line: Line) -> None:
        """Delete a pool that this node owns, and that takes no calls any more.

        Raises:
            NotReady: It could not be deleted.
        """
        role = self._roles.get(name)
        if role is None:
            raise moving()  # the node leaves
        try:
            async with asyncio.timeout(WITHIN_S):
                await role.end(line)
                registered = await self._around.registry.look(name)
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
        around = self._around
        await around.registry.delete(pool, ownership)
        await PoolStream(around.connection, around.names, pool.key).delete()
        await around.snapshots.delete(pool.key, pool.snapshot)
        log.info("a pool is deleted", pool=pool.name)
