"""Those who wait for blocks of a pool: a call that would be refused for want of them waits for its turn.

Whoever is next, and cannot be given what it needs yet, has the free blocks up to that reserved: others that
come, and new sequences and hard pins of those that do not wait, leave them; running sequences go on, so that
they end, also where they wait. What is guaranteed to a tenant is given to it whoever else waits. So each
waiter is served, as long as what is held is given back.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from blockyard.core.commands import Allocate, AllocateBlocks, Command, CreatePin, Idempotent, Step, unkeyed
from blockyard.core.errors import BlockyardError, InsufficientBlocks, QuotaExceeded
from blockyard.core.ids import TenantId
from blockyard.core.pool import Pool
from blockyard.core.replies import Allocated, BlocksAllocated, Reply
from blockyard.core.reply_memory import count_block_ids
from blockyard.core.waiting_line import WaitingLine

Apply: TypeAlias = Callable[[Command], Reply]
"""Gives a command to the pool, now. Raises BlockyardError."""


class Waiter:
    """One call that waits.

    Attributes:
        command: What it asks for.
        is_running: Whether that is more for a sequence which has blocks.
        refusal: Why it was not given that when it was tried last; None if it has not been its turn.
        outcome: What it will be answered.
    """

    __slots__ = ("command", "is_running", "outcome", "refusal")

    def __init__(self, command: Command, refusal: InsufficientBlocks | None, *, is_running: bool) -> None:
        self.command = command
        self.is_running = is_running
        self.refusal = refusal
        self.outcome: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def asked(self) -> Allocate | AllocateBlocks:
        """What it asks for, without its idempotency key."""
        asked = unkeyed(self.command)
        assert isinstance(asked, (Allocate, AllocateBlocks))
        return asked


class WaitingRoom:
    """Of one pool; empty at first. On the pool's event loop.

    Args:
        pool: To look at.
        apply: Changes it.
    """

    def __init__(self, pool: Pool, apply: Apply) -> None:
        self._pool = pool
        self._apply = apply
        self._line: WaitingLine[Waiter] = WaitingLine()
        self._num_reserved = 0
        self._is_noticed = False

    def num_waiting(self, tenant: TenantId) -> int:
        """How many of the tenant's calls wait."""
        return self._line.num_waiting(tenant)

    def has_before(self, command: Command) -> bool:
        """Whether others of its tenant wait before ``command``, which may wait."""
        tenant = unkeyed(command).tenant
        if self._is_running(command):
            return self._line.num_running(tenant) > 0
        return self._line.num_waiting(tenant) > 0

    def join(self, command: Command, refusal: InsufficientBlocks | None) -> Waiter:
        """Wait behind all others of the command's tenant; for a running sequence, behind such ones alone.

        Args:
            command: An `Allocate` or `AllocateBlocks` that says that it waits.
            refusal: Why it is not done at once; None where others of its tenant wait before it.
        """
        waiter = Waiter(command, refusal, is_running=self._is_running(command))
        self._line.join(waiter.asked.tenant, waiter, is_running=waiter.is_running)
        self.notice()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """It waits no more, whatever has come of it: its caller has gone, or its time is up."""
        if not waiter.outcome.done():
            self._end(waiter)
            waiter.outcome.cancel()
            self.notice()

    def refuse(self, waiter: Waiter, error: BlockyardError) -> None:
        """Answer it with ``error``, if it still waits."""
        if not waiter.outcome.done():
            self._refuse(waiter, error)
            self.notice()

    def close(self, error: BlockyardError) -> None:
        """Answer all who wait with ``error``."""
        for waiter in self._line:
            self._refuse(waiter, error)

    def leaving_reserved(self, command: Command) -> Command:
        """``command``, of somebody who does not wait, so that it leaves what is reserved."""
        asked = unkeyed(command)
        if not self._num_reserved or not isinstance(asked, (Allocate, AllocateBlocks, CreatePin, Step)):
            return command
        asked = replace(asked, num_reserved_blocks=self._num_reserved)
        return replace(command, command=asked) if isinstance(command, Idempotent) else asked

    def notice(self) -> None:
        """Something has changed in the pool: see at the end of this turn of the loop whose turn it is."""
        if not self._is_noticed:
            self._is_noticed = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Give to whoever is next, until nobody can be given anything."""
        self._is_noticed = False
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        """Serve the first in line who can be; whether there was one, or one had to go."""
        self._num_reserved = 0
        for waiter in list(self._line.first_of_each()):
            if self._may_try(waiter):
                try:
                    reply = self._apply(self.leaving_reserved(waiter.command))
                except InsufficientBlocks as error:
                    waiter.refusal = error
                    if not error.can_pass:
                        self._refuse(waiter, error)
                        return True
                except Exception as error:  # noqa: BLE001 - its caller is told, and others go on
                    self._refuse(waiter, error)
                    return True
                else:
                    self._give(waiter, reply)
                    return True
            refusal = waiter.refusal
            if refusal is not None and not isinstance(refusal, QuotaExceeded) and not self._num_reserved:
                self._num_reserved = refusal.figures["num_required_blocks"]
        return False

    def _may_try(self, waiter: Waiter) -> bool:
        """Whether trying may help. Each try is written down."""
        asked, refusal = waiter.asked, waiter.refusal
        lease = self._pool.leases.get(asked.lease_id)
        if refusal is None or lease is None or lease.epoch != self._pool.epoch:
            return True
        return self._pool.may_retry(asked.tenant, refusal, 0 if waiter.is_running else self._num_reserved)

    def _is_running(self, command: Command) -> bool:
        """Whether ``command`` asks for more for a sequence which its lease has."""
        asked = unkeyed(command)
        if not isinstance(asked, Allocate):
            return False
        sequence = self._pool.sequences.get(asked.tenant, asked.admission.sequence_id)
        return sequence is not None and sequence.lease_id == asked.lease_id

    def _give(self, waiter: Waiter, reply: Reply) -> None:
        tenant = waiter.asked.tenant
        assert isinstance(reply, (Allocated, BlocksAllocated)), f"{reply!r} gives no blocks"
        self._line.served(tenant, count_block_ids(reply), self._pool.tenant(tenant).weight)
        self._end(waiter)
        waiter.outcome.set_result(reply)

    def _refuse(self, waiter: Waiter, error: Exception) -> None:
        self._end(waiter)
        waiter.outcome.set_exception(error)

    def _end(self, waiter: Waiter) -> None:
        self._line.leave(waiter.asked.tenant, waiter)
