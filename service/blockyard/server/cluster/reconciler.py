"""Sees to it that this node is to each pool what it is to be, as far as that is up to this node."""

import asyncio
import contextlib

from blockyard.server.cluster.connection import persist
from blockyard.server.cluster.figures import TakeOver
from blockyard.server.cluster.hand_over_requests import HandOverRequests
from blockyard.server.cluster.pool_maker import PoolMaker
from blockyard.server.cluster.pool_role import PoolRole
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.cluster.roles import Roles
from blockyard.server.cluster.stage import Stage
from blockyard.server.cluster.surroundings import Surroundings
from blockyard.server.cluster.tenure import Errand, Tenure

TICK_S = 0.05
"""How often the lease is looked at."""
TICKS_A_LOOK = 10
"""How often all pools are, beside whenever something has changed."""
LINGER_S = 30.0
"""So long a pool stays warm that another node is to follow: that one has to read it first."""

HEIR_S = 5.0
"""So long the node that a pool was handed over to has for taking it over."""


class Reconciler:
    """Of one node.

    Args:
        around: What the node has.
        roles: What it is to pools.
        maker: Takes away what is left of deleted pools.
        requests: Ask other nodes for pools.
    """

    def __init__(
        self, around: Surroundings, roles: Roles, maker: PoolMaker, requests: HandOverRequests
    ) -> None:
        self._around = around
        self._roles = roles
        self._maker = maker
        self._requests = requests
        self._node = around.settings.node
        self._unwanted_s: dict[str, float] = {}
        self._free_s: dict[str, float] = {}
        self._is_over = False

    async def run(self) -> None:
        """Look at all pools again and again, until `end`."""
        news, num_ticks = self._around.news, 0
        while not self._is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await news.wait()
            num_ticks += 1
            for role in list(self._roles.values()):
                if role.has_lapsed:
                    role.suspend()
            if news.is_set() or num_ticks % TICKS_A_LOOK == 0:
                news.clear()
                if self._around.heartbeat.lease.holds:
                    await self._look()

    def end(self) -> None:
        """See to no pool any more."""
        self._is_over = True

    def heed(self, pool: str, heir: str) -> None:
        """``heir`` asks for a pool: it gets it, if this node owns it, and finds that one to be first."""
        role = self._roles.get(pool)
        if (
            role is not None
            and role.stage is Stage.OWNING
            and not role.is_busy
            and heir != self._node
            and self._around.members.order(pool)[:1] == [heir]
        ):
            role.act(role.hand_over(heir))

    async def _look(self) -> None:
        """See to every pool once."""
        registered = {pool.name: pool for pool in self._around.registry}
        for role in list(self._roles.values()):
            pool = registered.get(role.name)
            is_gone = pool is None or pool.key != role.key
            if is_gone and (role.stage.is_waiting or role.stage is Stage.SUSPENDED):
                await self._stop(role)
        for pool in registered.values():
            known = self._roles.get(pool.name)
            if known is None:
                if self._is_wanted(pool):
                    self._roles[pool.name] = role = PoolRole(pool.name, pool.key, self._around)
                    role.follow()
            elif not known.is_busy and known.key == pool.key:
                await self._see_to(pool, known)

    async def _see_to(self, pool: RegisteredPool, role: PoolRole) -> None:
        if role.stage is Stage.SUSPENDED:
            role.act(self._regain(role))
        elif role.stage is Stage.FOLLOWING and role.is_warm:
            self._do_what_is_due(pool, role)
        if role.is_busy or not role.stage.is_waiting or self._is_wanted(pool):
            self._unwanted_s.pop(pool.name, None)
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._unwanted_s.setdefault(pool.name, now_s) > LINGER_S:
            await self._stop(role)

    def _do_what_is_due(self, pool: RegisteredPool, role: PoolRole) -> None:
        around, followed, members = self._around, role.followed, self._around.members
        assert followed is not None, "it is warm"
        tenure = followed.tenure
        due = tenure.due(
            around.heartbeat.me,
            is_first=members.order(pool.name)[:1] == [self._node],
            is_gone=self._is_gone(pool.name, tenure),
        )
        match due:
            case TakeOver():
                role.act(self._take_over(role, due))
            case Errand.BURY:
                around.chores.do(self._maker.bury(pool, followed.ownership))
            case Errand.ASK:
                assert tenure.holder is not None, "an owner is asked"
                around.chores.do(self._requests.ask(pool.name, tenure.holder.node))
            case None:
                pass

    def _is_gone(self, name: str, tenure: Tenure) -> bool:
        """Whether the pool's owner, or the heir where there is none, is not to be waited for."""
        members = self._around.members
        if tenure.holder is not None:
            self._free_s.pop(name, None)
            return members.is_dead(tenure.holder)
        now_s = asyncio.get_running_loop().time()
        is_late = now_s - self._free_s.setdefault(name, now_s) > HEIR_S
        return is_late or tenure.heir not in members.live

    def _is_wanted(self, pool: RegisteredPool) -> bool:
        """Whether this node is to own it, or to follow it."""
        order = self._around.members.order(pool.name)
        return self._roles.placement(pool, order).wants(self._node)

    async def _take_over(self, role: PoolRole, how: TakeOver) -> None:
        await role.take_over(how)
        self._note_owner(role)

    async def _regain(self, role: PoolRole) -> None:
        await role.regain()
        self._note_owner(role)

    def _note_owner(self, role: PoolRole) -> None:
        if role.stage is Stage.OWNING:
            self._around.chores.do(self._register(role.name, role.ownership))

    async def _register(self, name: str, ownership: int) -> None:
        note = self._around.registry.note_owner
        await persist(lambda: note(name, self._node, ownership), "an owner cannot be registered")

    async def _stop(self, role: PoolRole) -> None:
        self._unwanted_s.pop(role.name, None)
        self._free_s.pop(role.name, None)
        self._requests.forget(role.name)
        self._roles.forget(role)
        await role.stop()
