"""The two loops around `deliver`: one that blocks, one that awaits."""

import asyncio
import time
import weakref
from typing import Protocol, TypeVar

from blockyard.client.call import Call
from blockyard.client.delivery import Outcome, Pause, Routes, deliver
from blockyard.client.retry import RetryPolicy
from blockyard.client.transport import AsyncTransport, Transport
from blockyard.client.wire import Request
from blockyard.core.errors import BlockyardError

T = TypeVar("T")


class Stoppable(Protocol):
    """Something in the background that uses a sender."""

    def stop(self) -> None:
        """Ask it to end."""
        ...


class Sender:
    """Sends calls and waits. Thread-safe.

    Args:
        transport: Carries the requests; closed with the sender.
        routes: Where to.
        policy: How often.
        timeout_s: Of one try.
    """

    def __init__(self, transport: Transport, routes: Routes, policy: RetryPolicy, timeout_s: float) -> None:
        self._transport = transport
        self._routes = routes
        self._policy = policy
        self._timeout_s = timeout_s
        self.background: weakref.WeakSet[Stoppable] = weakref.WeakSet()
        """Stopped when the sender closes."""

    def send(self, call: Call[T], policy: RetryPolicy | None = None) -> T:
        """The call's value; ``policy`` in place of the sender's own.

        Raises:
            BlockyardError: The refusal, or what ended the last try.
        """
        delivery = deliver(call, self._routes, policy or self._policy)
        outcome: Outcome = None
        while True:
            try:
                action = delivery.send(outcome)
            except StopIteration as done:
                value: T = done.value
                return value
            outcome = self._do(action)

    def close(self) -> None:
        """Stop what uses the sender, close its connections."""
        for user in list(self.background):
            user.stop()
        self._transport.close()

    def _do(self, action: Request | Pause) -> Outcome:
        if isinstance(action, Pause):
            time.sleep(action.seconds)
            return None
        try:
            return self._transport.send(action, self._timeout_s)
        except BlockyardError as error:
            return error


class AsyncSender:
    """Sends calls and awaits their answers, on one event loop.

    Args:
        transport: Carries the requests; closed with the sender.
        routes: Where to.
        policy: How often.
        timeout_s: Of one try.
    """

    def __init__(
        self, transport: AsyncTransport, routes: Routes, policy: RetryPolicy, timeout_s: float
    ) -> None:
        self._transport = transport
        self._routes = routes
        self._policy = policy
        self._timeout_s = timeout_s
        self.background: weakref.WeakSet[Stoppable] = weakref.WeakSet()
        """Stopped when the sender closes."""

    async def send(self, call: Call[T], policy: RetryPolicy | None = None) -> T:
        """As `Sender.send`."""
        delivery = deliver(call, self._routes, policy or self._policy)
        outcome: Outcome = None
        while True:
            try:
                action = delivery.send(outcome)
            except StopIteration as done:
                value: T = done.value
                return value
            outcome = await self._do(action)

    async def close(self) -> None:
        """Stop what uses the sender, close its connections."""
        for user in list(self.background):
            user.stop()
        await self._transport.close()

    async def _do(self, action: Request | Pause) -> Outcome:
        if isinstance(action, Pause):
            await asyncio.sleep(action.seconds)
            return None
        try:
            return await self._transport.send(action, self._timeout_s)
        except BlockyardError as error:
            return error
