"""The two loops around a `Delivery`: one that blocks, one that awaits."""

import asyncio
import random
import threading
import time
import weakref
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from blockyard.client.call import Call
from blockyard.client.delivery import Delivery, Instead, Surroundings
from blockyard.client.keys import new_key
from blockyard.client.retry import RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.token import token_headers
from blockyard.client.trace_headers import trace_headers
from blockyard.client.transport import AsyncTransport, Transport
from blockyard.core.errors import BlockyardError

STOPPING_S = 1.0
"""All that a closing sender waits for those that use it in the background."""

_SURROUNDINGS = Surroundings(
    now_s=time.monotonic,
    draw=random.random,
    new_key=new_key,
    headers=trace_headers,
)


def _surroundings(token: str | None) -> Surroundings:
    """Those of each call that shows ``token``. Raises ValueError."""
    shown = token_headers(token)
    if not shown:
        return _SURROUNDINGS
    return replace(_SURROUNDINGS, headers=lambda: {**trace_headers(), **shown})


class Stoppable(Protocol):
    """Something in the background that uses a `Sender`."""

    def signal(self) -> None:
        """Ask it to end."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait for its end, at most so long."""
        ...


class AsyncStoppable(Protocol):
    """Something in the background that uses an `AsyncSender`."""

    async def stop(self) -> None:
        """End it."""
        ...


T = TypeVar("T")
Carrier = TypeVar("Carrier")
User = TypeVar("User")


class _Sending(Generic[Carrier, User]):
    """What both senders know: by what and where to, how often, who uses them, and whether they are closed."""

    def __init__(
        self,
        transport: Carrier,
        routes: Routes,
        policy: RetryPolicy | None,
        timeout_s: float,
        token: str | None = None,
    ) -> None:
        self.routes = routes
        self._transport = transport
        self._surroundings = _surroundings(token)
        self._policy = policy
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[User] = weakref.WeakSet()
        self._is_closed = False

    def add_user(self, user: User) -> None:
        """To be stopped when the sender closes; not kept alive by it.

        Raises:
            RuntimeError: The sender is closed.
        """
        with self._lock:
            self._check_open()
            self._users.add(user)

    def _delivery(self, call: Call[T], policy: RetryPolicy | None) -> Delivery[T]:
        self._check_open()
        return Delivery(call, self.routes, policy or self._policy, self._surroundings)

    def _try_s(self, call: Call[T], timeout_s: float | None) -> float:
        try_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        return try_s + call.wait_s

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")

    def _end(self) -> list[User]:
        with self._lock:
            self._is_closed = True
            return list(self._users)


class Sender(_Sending[Transport, Stoppable]):
    """Sends calls and waits. Thread-safe.

    Args:
        transport: Carries the requests; closed with the sender.
        routes: Where to.
        policy: How often; None: see `Delivery`.
        timeout_s: Of one try, beside what the server lets its call wait.
        token: Shown with each; None for none.

    Raises:
        ValueError: ``token`` cannot be one.
    """

    def send(self, call: Call[T], policy: RetryPolicy | None = None, timeout_s: float | None = None) -> T:
        """The call's value.

        Args:
            call: To send.
            policy: In place of the sender's own.
            timeout_s: Of one try, if it is shorter than the sender's own.

        Raises:
            BlockyardError: The refusal, or what ended the last try.
            RuntimeError: The sender is closed.
        """
        delivery, try_s = self._delivery(call, policy), self._try_s(call, timeout_s)
        while True:
            response = None
            try:
                response = self._transport.send(delivery.request, try_s)
                return delivery.read(response)
            except BlockyardError as error:
                verdict = delivery.failed(error, response)
                if verdict is None:
                    raise
            if isinstance(verdict, Instead):
                return verdict.value
            time.sleep(verdict.seconds)

    def close(self) -> None:
        """Stop what uses the sender, close its connections."""
        users = self._end()
        for user in users:
            user.signal()
        until_s = time.monotonic() + STOPPING_S
        for user in users:
            user.join(max(0.0, until_s - time.monotonic()))
        self._transport.close()


class AsyncSender(_Sending[AsyncTransport, AsyncStoppable]):
    """Sends calls and awaits their answers, on one event loop. The arguments are `Sender`'s."""

    async def send(
        self, call: Call[T], policy: RetryPolicy | None = None, timeout_s: float | None = None
    ) -> T:
        """As `Sender.send`."""
        delivery, try_s = self._delivery(call, policy), self._try_s(call, timeout_s)
        while True:
            response = None
            try:
                response = await self._transport.send(delivery.request, try_s)
                return delivery.read(response)
            except BlockyardError as error:
                verdict = delivery.failed(error, response)
                if verdict is None:
                    raise
            if isinstance(verdict, Instead):
                return verdict.value
            await asyncio.sleep(verdict.seconds)

    async def close(self) -> None:
        """Stop what uses the sender, close its connections."""
        await asyncio.gather(*(user.stop() for user in self._end()))
        await self._transport.close()
