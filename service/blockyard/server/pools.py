"""The pools that this server owns, by name."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from blockyard.core.commands import Command, ExpireLeases, Resume
from blockyard.core.config import PoolConfig
from blockyard.core.errors import (
    BlockyardError,
    LimitExceeded,
    PlanNotFound,
    PoolExists,
    PoolInUse,
    PoolNotFound,
)
from blockyard.core.ids import TenantId
from blockyard.core.pool import Pool
from blockyard.core.replies import LeasesExpired, Reply
from blockyard.planning.planner import Plan
from blockyard.server import collector
from blockyard.server.events.hub import EventHub
from blockyard.server.journal.command_codec import encode_command
from blockyard.server.journal.line import Line
from blockyard.server.journal.recovery import RecoveredPool
from blockyard.server.pool_journal import PoolJournal
from blockyard.server.waiting_room import WaitingRoom


@dataclass(slots=True)
class OwnedPool:
    """A pool, and what belongs to it.

    Attributes:
        pool: Its state.
        plan: What it was made from; None for sizes.
        line: Of its commands in the journal; None where there is no journal.
        room: Those who wait for its blocks; None where nobody ever has.
    """

    pool: Pool
    plan: Plan | None
    line: Line | None
    room: WaitingRoom | None = None


class Pools:
    """None at first, ``max_pools`` at most, each of ``max_pool_blocks`` at most.

    All commands go through `apply`, which writes them down: nothing may be told of what they did before
    its `Commit` is settled. Their events go to ``hub``.

    Attributes:
        absent: What is said of a pool that is not here: that it is not found, unless others may have it.
    """

    def __init__(self, max_pools: int, max_pool_blocks: int, journal: PoolJournal, hub: EventHub) -> None:
        self._max_pools = max_pools
        self._max_pool_blocks = max_pool_blocks
        self._journal = journal
        self._hub = hub
        self._pools: dict[str, OwnedPool] = {}
        self._changing = asyncio.Lock()  # held while one comes or goes
        self.absent: Callable[[str], BlockyardError] = PoolNotFound.of

    def __iter__(self) -> Iterator[tuple[str, Pool]]:
        return ((name, owned.pool) for name, owned in self._pools.items())

    def __len__(self) -> int:
        return len(self._pools)

    def lines(self) -> list[Line]:
        """Of all pools that are journalled."""
        return [owned.line for owned in self._pools.values() if owned.line is not None]

    def lines_by_name(self) -> dict[str, Line]:
        """The same, by the names of their pools."""
        return {name: owned.line for name, owned in self._pools.items() if owned.line is not None}

    def find(self, name: str) -> Pool | None:
        """The pool of this name, to read from, if there is one."""
        owned = self._pools.get(name)
        return None if owned is None else owned.pool

    def get(self, name: str) -> Pool:
        """The pool of this name, to read from.

        Raises:
            PoolNotFound: There is none.
        """
        return self._owned(name).pool

    def plan_if_any(self, name: str) -> Plan | None:
        """The plan that the pool of this name was made from; None where it was made from sizes.

        Raises:
            PoolNotFound: There is no such pool.
        """
        return self._owned(name).plan

    def plan(self, name: str) -> Plan:
        """The plan that the pool of this name was made from.

        Raises:
            PoolNotFound: There is no such pool.
            PlanNotFound: It was made from sizes.
        """
        plan = self.plan_if_any(name)
        if plan is None:
            raise PlanNotFound(f"pool {name!r} was made from sizes, not from a plan")
        return plan

    def apply(self, name: str, command: Command, now_ms: int) -> Reply:
        """Give ``command`` to the pool of this name, and write it down, whatever comes of it.

        Raises:
            PoolNotFound: There is no such pool.
            BlockyardError: As `Pool.apply`.
        """
        owned = self._owned(name)
        room = owned.room
        if room is None:
            return self._apply(name, owned, command, now_ms)
        try:
            return self._apply(name, owned, room.leaving_reserved(command), now_ms)
        finally:
            room.notice()

    def waiting_room(
        self, name: str, now_ms: Callable[[], int], check: Callable[[Pool, Command], None]
    ) -> WaitingRoom:
        """Where calls to the pool of this name wait for blocks; made when the first one does.

        Args:
            name: The pool's.
            now_ms: The time that is given to commands of those who have waited.
            check: Raises BlockyardError for a command that is not to be done by then, for whatever reason.

        Raises:
            PoolNotFound: There is no such pool.
        """
        owned = self._owned(name)
        if owned.room is None:

            def apply(command: Command) -> Reply:
                check(owned.pool, command)
                return self._apply(name, owned, command, now_ms())

            owned.room = WaitingRoom(owned.pool, apply)
        return owned.room

    def num_waiting(self, name: str, tenant: TenantId) -> int:
        """How many of the tenant's calls wait for blocks of the pool of this name. Raises PoolNotFound."""
        room = self._owned(name).room
        return 0 if room is None else room.num_waiting(tenant)

    def has_waiting_before(self, name: str, command: Command) -> bool:
        """Whether ``command``, which may wait, has to, since others of its tenant do. Raises PoolNotFound."""
        owned = self._owned(name)
        is_behind = owned.room is not None and owned.room.has_before(command)
        return is_behind and not owned.pool.remembers(command)

    def refuse_waiters(self, error: BlockyardError) -> None:
        """Answer all calls that wait for blocks with ``error``."""
        for owned in self._pools.values():
            if owned.room is not None:
                owned.room.close(error)

    def _apply(self, name: str, owned: OwnedPool, command: Command, now_ms: int) -> Reply:
        # Before it is done: what cannot be written down is not.
        entry = None if owned.line is None else encode_command(command, now_ms)
        try:
            return owned.pool.apply(command, now_ms)
        finally:
            if owned.line is not None and entry is not None:
                self._journal.add(owned.line, entry)
            if owned.pool.events is not None:
                self._hub.note(name)

    async def create(
        self,
        name: str,
        config: PoolConfig,
        plan: Plan | None = None,
        request: bytes | None = None,
        *,
        any_eviction: bool = False,
    ) -> tuple[Pool, bool]:
        """The pool of this name and configuration, and whether it is new.

        Args:
            name: Not checked.
            config: Sizes and options.
            plan: What they follow from, if they do.
            request: The request for it as it came, with a plan.
            any_eviction: Whether one that stands may evict otherwise.

        Raises:
            PoolExists: It stands with another configuration or plan.
            LimitExceeded: It would be too large, or one too many.
            InvalidRequest: Its sizes are wrong.
            NotReady: It could not be written down.
        """
        async with self._changing:
            known = self._pools.get(name)
            if known is not None:
                if any_eviction:
                    config = replace(config, eviction=known.pool.config.eviction)
                if known.pool.config != config or known.plan != plan:
                    raise PoolExists(
                        f"pool {name!r} has another configuration: delete it first, or choose another name"
                    )
                return known.pool, False
            if max(config.num_blocks, config.num_host_blocks or 0) > self._max_pool_blocks:
                raise LimitExceeded.of(
                    "max_pool_blocks",
                    self._max_pool_blocks,
                    f"this server makes pools of at most {self._max_pool_blocks} blocks",
                )
            if len(self._pools) >= self._max_pools:
                raise LimitExceeded.of(
                    "max_pools",
                    self._max_pools,
                    f"this server owns {self._max_pools} pools already: delete one first",
                )
            pool = Pool(config)
            collector.keep()
            line = await self._journal.create(name, config, request)
            self._pools[name] = OwnedPool(pool, plan, line)
            self._hub.open(name, pool)
            return pool, True

    def adopt(self, recovered: list[RecoveredPool], now_ms: int) -> None:
        """Own these pools again: whoever was there before counts as having called just now."""
        for each in recovered:
            self._pools[each.name] = OwnedPool(each.pool, each.plan, each.line)
            self._hub.open(each.name, each.pool)
            self.apply(each.name, Resume(since_ms=each.pool.now_ms), now_ms)

    async def delete(self, name: str, *, force: bool) -> Pool:
        """Take the pool of this name away; with ``force``, whatever is held.

        Raises:
            PoolNotFound: There is none.
            PoolInUse: Blocks of it are held.
            NotReady: It could not be written down.
        """
        async with self._changing:
            owned = self._owned(name)
            num_held = owned.pool.num_held_blocks
            if num_held and not force:
                raise PoolInUse(
                    f"{num_held} blocks of pool {name!r} are held: free them, or delete with ?force=true"
                )
            self.release(name, PoolNotFound.of(name))
            if owned.line is not None:
                await self._journal.drop(name, owned.line)
            return owned.pool

    def release(self, name: str, error: BlockyardError) -> OwnedPool:
        """Own the pool of this name no more; ``error`` is what those are told who wait for its blocks.

        Raises:
            PoolNotFound: There is none.
        """
        owned = self._owned(name)
        del self._pools[name]
        if owned.room is not None:
            owned.room.close(error)
        self._hub.drop(name)
        return owned

    def expire(self, now_ms: int) -> list[tuple[str, LeasesExpired]]:
        """End every lease and pin that has run out; the pools concerned, and what came back."""
        expired = []
        for name, pool in self:
            next_expiry_ms = pool.next_expiry_ms
            if next_expiry_ms is not None and next_expiry_ms <= now_ms:
                reply = self.apply(name, ExpireLeases(), now_ms)
                assert isinstance(reply, LeasesExpired)
                if reply.lease_ids or reply.pin_ids:
                    expired.append((name, reply))
        return expired

    def _owned(self, name: str) -> OwnedPool:
        owned = self._pools.get(name)
        if owned is None:
            raise self.absent(name)
        return owned
