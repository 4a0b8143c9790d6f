"""From a call to its value, over tries, pauses and redirects: without I/O.

`deliver` is a generator that says what to do next, so that the threaded and the asynchronous sender are loops
of a few lines and cannot differ in what they decide.
"""

import random
import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from urllib.parse import urljoin, urlsplit

from blockyard.client.call import Call
from blockyard.client.errors import ConnectionLost, UnexpectedReply
from blockyard.client.retry import Attempts, RetryPolicy
from blockyard.client.wire import Request, Response
from blockyard.core.errors import BlockyardError, NotReady

T = TypeVar("T")

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({307, 308})


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds, then go on."""

    seconds: float


Outcome: TypeAlias = Response | BlockyardError | None
"""Of a request: a response, or why there is none; of a pause: None."""


class Routes:
    """Where to send a call: the server that the client was given, or the one a redirect named for a pool.

    Args:
        url: The server, ``http://host:port``.
        token: Sent to every server, the ones redirected to included: they are nodes of one cluster.

    Raises:
        ValueError: ``url`` is not an HTTP URL, or has more than scheme, host and port.
    """

    __slots__ = ("_headers", "_home", "_owners")

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"not the URL of a server, http://host:port: {url!r}")
        self._home = f"{parts.scheme}://{parts.netloc}"
        self._owners: dict[str, str] = {}
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def origin(self, pool: str | None) -> str:
        """The server to ask first about ``pool``."""
        return self._home if pool is None else self._owners.get(pool, self._home)

    def headers(self, key: str | None) -> dict[str, str]:
        """What every request carries, and its idempotency key."""
        return self._headers if key is None else {**self._headers, "Idempotency-Key": key}

    def follow(self, request: Request, response: Response, pool: str | None) -> tuple[str, str]:
        """Origin and target that a redirect names; with the same target, the origin is the pool's then.

        Raises:
            UnexpectedReply: It names none, or leaves an encrypted connection for an open one.
        """
        parts = urlsplit(urljoin(request.origin + request.target, response.headers.get("location", "")))
        origin = f"{parts.scheme}://{parts.netloc}"
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        if "location" not in response.headers or parts.scheme not in ("http", "https"):
            raise UnexpectedReply("a redirect without a usable location", {"status": response.status})
        if parts.scheme == "http" and request.origin.startswith("https:"):
            raise UnexpectedReply(f"a redirect from https to {origin}", {"status": response.status})
        if pool is not None and target == request.target:
            self._owners[pool] = origin
        return origin, target

    def forget(self, pool: str | None) -> None:
        """Ask the first server again: the pool's own does not answer."""
        if pool is not None:
            self._owners.pop(pool, None)


def deliver(call: Call[T], routes: Routes, policy: RetryPolicy) -> Generator[Request | Pause, Outcome, T]:
    """Sends ``call`` until it has an answer or the policy is exhausted.

    Yields:
        A request to send, to be answered with its outcome; or a pause to make, answered with None.

    Returns:
        The call's value.

    Raises:
        BlockyardError: The refusal, or what ended the last try.
    """
    attempts = Attempts(policy, time.monotonic())
    headers = routes.headers((call.key or secrets.token_hex(16)) if call.is_change else None)
    is_repeat = False
    while True:
        try:
            return call.read((yield from _exchange(call, routes, headers)))
        except BlockyardError as error:
            if is_repeat and call.if_gone is not None and isinstance(error, call.if_gone[0]):
                return call.if_gone[1]
            if isinstance(error, ConnectionLost):
                routes.forget(call.pool)
            pause_s = attempts.pause_s(error, time.monotonic(), random.random)
            if pause_s is None:
                raise
        is_repeat = True
        yield Pause(pause_s)


def _exchange(
    call: Call[T], routes: Routes, headers: dict[str, str]
) -> Generator[Request | Pause, Outcome, Response]:
    origin, target = routes.origin(call.pool), call.path
    for _ in range(MAX_REDIRECTS + 1):
        request = call.request(origin, target, headers)
        outcome = yield request
        if isinstance(outcome, BlockyardError):
            raise outcome
        assert outcome is not None
        if outcome.status not in _REDIRECTS:
            return outcome
        origin, target = routes.follow(request, outcome, call.pool)
    routes.forget(call.pool)
    raise NotReady(f"redirected {MAX_REDIRECTS} times: the servers have not settled who has the pool")
