"""Calls that wait for blocks, over all pools: how they come to wait, for how long, and how many may."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope

from blockyard.core.commands import Command, unkeyed
from blockyard.core.errors import InsufficientBlocks, LimitExceeded, NotReady, Overloaded, Unauthorized
from blockyard.core.ids import TenantId
from blockyard.core.replies import Reply
from blockyard.server.clock import Clock
from blockyard.server.guard import ClientGone, waiting
from blockyard.server.pools import Pools
from blockyard.server.readiness import RETRY_AFTER_MS as STOPPED_RETRY_AFTER_MS
from blockyard.server.sse import hung_up
from blockyard.server.tenant_limits import TenantLimits
from blockyard.server.waiting_room import Waiter, WaitingRoom

RETRY_AFTER_MS = 1_000
"""When there may be room for one more."""


class HasToWait(Exception):
    """A call has to wait: there are too few blocks for it, or it is not its turn.

    Attributes:
        pool: The pool's name.
        command: What it asks for.
        wait_ms: How long it may wait.
        refusal: Why it is not done; None where others of its tenant wait before it.
    """

    def __init__(self, pool: str, command: Command, wait_ms: int, refusal: InsufficientBlocks | None) -> None:
        super().__init__(pool)
        self.pool = pool
        self.command = command
        self.wait_ms = wait_ms
        self.refusal = refusal


class WaitingRooms:
    """One for each pool that somebody waits for.

    Args:
        pools: The server's.
        clock: The time that commands are given.
        tenant_limits: Hold for those who have waited as well.
        may_go_on: Whether the caller whose request has this ASGI scope may still wait.
        max_wait_ms: Longest time that a call may wait.
        max_waiting: Calls that may wait at a time.
        max_waiting_bytes: What these may have sent in all; a tenant half of it.
        max_waiting_per_tenant: The same of one tenant, so that it leaves room for others.
    """

    def __init__(
        self,
        pools: Pools,
        clock: Clock,
        *,
        tenant_limits: TenantLimits,
        may_go_on: Callable[[Scope], bool],
        max_wait_ms: int,
        max_waiting: int,
        max_waiting_bytes: int,
        max_waiting_per_tenant: int,
    ) -> None:
        self._pools = pools
        self._clock = clock
        self._tenant_limits = tenant_limits
        self._may_go_on = may_go_on
        self._max_wait_ms = max_wait_ms
        self._max_waiting = max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes: Counter[TenantId] = Counter()
        self._max_waiting_per_tenant = max_waiting_per_tenant
        self._waiting: Counter[TenantId] = Counter()
        self._scopes: dict[Waiter, tuple[WaitingRoom, Scope]] = {}

    def apply_or_wait(self, pool: str, command: Command, wait_ms: int) -> Reply:
        """Do ``command``, an allocation that may wait for ``wait_ms``, now.

        Raises:
            HasToWait: That cannot be, but may in time.
            LimitExceeded: It would wait for too long.
            BlockyardError: It is refused.
        """
        if wait_ms > self._max_wait_ms:
            raise LimitExceeded.of("max_wait_ms", self._max_wait_ms, f"no call waits for {wait_ms} ms here")
        if self._pools.has_waiting_before(pool, command):
            raise HasToWait(pool, command, wait_ms, None)
        try:
            return self._pools.apply(pool, command, self._clock.now_ms())
        except InsufficientBlocks as refusal:
            if not refusal.can_pass:
                raise
            raise HasToWait(pool, command, wait_ms, refusal) from None

    async def wait(self, late: HasToWait, scope: Scope, receive: Receive, num_bytes: int) -> Reply:
        """The reply once it is the turn of a call that has to wait, the request of ``scope``.

        Its body had ``num_bytes``.

        Raises:
            InsufficientBlocks: The time is up, and nothing was given.
            Overloaded: Too many wait already.
            Unauthorized: Its token is not known any more.
            ClientGone: ``receive`` says that nobody is there to be answered; nothing is left of it.
            BlockyardError: It is refused for another reason, such as the end of its lease.
        """
        tenant = unkeyed(late.command).tenant
        self._check_room(tenant, num_bytes)
        room = self._pools.waiting_room(late.pool, self._clock.now_ms, self._tenant_limits.check)
        waiter = room.join(late.command, late.refusal)
        self._waiting[tenant] += 1
        self._waiting_bytes[tenant] += num_bytes
        self._scopes[waiter] = (room, scope)
        self._review(waiter)
        try:
            with waiting(scope, late.wait_ms / 1_000):
                return await self._outcome(waiter, room, late, receive)
        finally:
            room.leave(waiter)
            del self._scopes[waiter]
            self._waiting[tenant] -= 1
            self._waiting_bytes[tenant] -= num_bytes
            if not self._waiting[tenant]:
                del self._waiting[tenant], self._waiting_bytes[tenant]

    def review(self) -> None:
        """Refuse those whose tokens are not known any more."""
        for waiter in list(self._scopes):
            self._review(waiter)

    def _review(self, waiter: Waiter) -> None:
        room, scope = self._scopes[waiter]
        if not self._may_go_on(scope):
            room.refuse(waiter, Unauthorized("the token that this call came with is not known any more"))

    def stop(self) -> None:
        """Answer all who wait that the server stops."""
        figures = {"retry_after_ms": STOPPED_RETRY_AFTER_MS}
        self._pools.refuse_waiters(NotReady("the server is stopping: try again", figures))

    async def _outcome(self, waiter: Waiter, room: WaitingRoom, late: HasToWait, receive: Receive) -> Reply:
        gone = asyncio.create_task(hung_up(receive))
        ends: list[asyncio.Future[Any]] = [waiter.outcome, gone]
        try:
            await asyncio.wait(ends, timeout=late.wait_ms / 1_000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if waiter.outcome.done():
            return waiter.outcome.result()
        if gone.done() and not gone.cancelled():
            raise ClientGone
        room.leave(waiter)
        if waiter.refusal is not None:
            raise waiter.refusal
        self._tenant_limits.check(self._pools.get(late.pool), late.command)
        return self._pools.apply(late.pool, late.command, self._clock.now_ms())  # never tried so far

    def _check_room(self, tenant: TenantId, num_bytes: int) -> None:
        figures = {"retry_after_ms": RETRY_AFTER_MS}
        most = self._max_waiting_bytes
        is_full = self._waiting_bytes.total() + num_bytes > most
        if is_full or self._waiting_bytes[tenant] + num_bytes > most // 2:
            raise Overloaded(
                f"calls that wait for blocks may have sent {most} bytes, a tenant's half of it "
                "(--max-waiting-bytes): try again",
                figures,
            )
        if self._waiting.total() >= self._max_waiting:
            raise Overloaded(
                f"{self._max_waiting} calls wait for blocks already (--max-waiting-calls): try again", figures
            )
        if self._waiting[tenant] >= self._max_waiting_per_tenant:
            raise Overloaded(
                f"{self._max_waiting_per_tenant} calls of this tenant wait for blocks already "
                "(--max-waiting-calls-per-tenant): try again",
                figures,
            )
