"""From a call to its value, over tries and pauses: without I/O, clock or randomness.

`Delivery` decides what a failed try means, so that the threaded and the asynchronous sender are loops of a
few lines and cannot differ in what they do next:

    delivery = Delivery(call, origin, policy, surroundings)
    while True:
        response = None
        try:
            response = ...send delivery.request...
            return call.read(response)
        except BlockyardError as error:
            verdict = delivery.failed(error, response)
            if verdict is None:
                raise
        if isinstance(verdict, Instead):
            return verdict.value
        ...wait verdict.seconds...
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from blockyard.client.call import Call
from blockyard.client.errors import ConnectionLost, UnexpectedReply, is_verdict, note_outcome_unknown
from blockyard.client.retry import Attempts, RetryPolicy
from blockyard.client.wire import Response
from blockyard.core.errors import BlockyardError, RequestTimeout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds, then go on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Instead(Generic[T]):
    """The failure means that the call has succeeded, with this value."""

    value: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What delivering takes from the world.

    Attributes:
        now_s: Tells the time, on a steady clock.
        draw: Gives a number from 0 to 1.
        new_key: Gives an idempotency key that was never given before.
        headers: Gives the headers that say who calls: which trace a call belongs to, and a token.
    """

    now_s: Callable[[], float]
    draw: Callable[[], float]
    new_key: Callable[[], str]
    headers: Callable[[], Mapping[str, str]]


def origin_of(url: str) -> str:
    """The server that ``url`` names, as scheme, host and port.

    Raises:
        ValueError: It is not an HTTP URL, or has more than these.
    """
    parts = urlsplit(url)
    is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or "@" in parts.netloc)
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not has_port:
        raise ValueError(f"not the URL of a server, http://host:port: {url!r}")
    return f"{parts.scheme}://{parts.netloc}"


class Delivery(Generic[T]):
    """The tries of one call at ``origin``, until it has an answer or ``policy`` is exhausted.

    Attributes:
        request: What each try sends: the same under one key.
    """

    __slots__ = (
        "_attempts",
        "_call",
        "_may_be_done",
        "_policy",
        "_started_s",
        "_surroundings",
        "request",
    )

    def __init__(self, call: Call[T], origin: str, policy: RetryPolicy, surroundings: Surroundings) -> None:
        self._call = call
        self._surroundings = surroundings
        self._policy = policy
        self._started_s = surroundings.now_s()
        self._attempts: Attempts | None = None  # until one has failed, as few do
        self._may_be_done = False
        key = surroundings.new_key() if call.is_keyed else None
        self.request = call.request(origin, key, surroundings.headers())

    def failed(self, error: BlockyardError, response: Response | None) -> Pause | Instead[T] | None:
        """What to do after a try that ended with ``error``.

        Args:
            error: The refusal, or why there is no answer.
            response: That the error was read from; None where none arrived.

        Returns:
            A pause before the next try; or the call's value; or None: raise the error, which was the last.
            See `blockyard.client.errors.may_have_been_done`.
        """
        call = self._call
        if call.unreachable is not None and isinstance(error, ConnectionLost):
            return Instead(call.unreachable)
        if self._attempts is not None and call.if_gone is not None and isinstance(error, call.if_gone[0]):
            return Instead(call.if_gone[1])
        self._may_be_done = self._may_be_done or _leaves_open(error, response)
        if self._attempts is None:
            self._attempts = Attempts(self._policy, self._started_s, call.wait_s)
        pause_s = self._attempts.pause_s(error, self._surroundings.now_s(), self._surroundings.draw)
        if pause_s is None:
            if self._may_be_done and not is_verdict(error):
                note_outcome_unknown(error)
            return None
        return Pause(pause_s)


def _leaves_open(error: BlockyardError, response: Response | None) -> bool:
    """Whether a try that ended so may have been carried out."""
    if isinstance(error, (ConnectionLost, UnexpectedReply)):
        return True
    if isinstance(error, RequestTimeout):  # a head or a body that was late has done nothing
        return error.figures.get("limit") not in ("head_timeout_s", "body_timeout_s")
    return response is not None and response.status >= 500
