"""From a call to its value, over tries and pauses: without I/O, clock or randomness.

`deliver` is a generator that says what to do next, so that the threaded and the asynchronous sender are loops
of a few lines and cannot differ in what they decide.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from blockyard.client.call import Call
from blockyard.client.errors import ConnectionLost, UnexpectedReply, is_verdict, note_outcome_unknown
from blockyard.client.retry import Attempts, RetryPolicy
from blockyard.client.wire import Request, Response
from blockyard.core.errors import BlockyardError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds, then go on."""

    seconds: float


Outcome: TypeAlias = Response | BlockyardError | None
"""Of a request: a response, or why there is none; of a pause: None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What delivering takes from the world.

    Attributes:
        now_s: Tells the time, on a steady clock.
        draw: Gives a number from 0 to 1.
        new_key: Gives an idempotency key that was never given before.
        trace: Gives the headers that say which trace a call belongs to.
    """

    now_s: Callable[[], float]
    draw: Callable[[], float]
    new_key: Callable[[], str]
    trace: Callable[[], Mapping[str, str]]


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


def deliver(
    call: Call[T], origin: str, policy: RetryPolicy, surroundings: Surroundings
) -> Generator[Request | Pause, Outcome, T]:
    """Sends ``call`` to ``origin`` until it has an answer or the policy is exhausted.

    Yields:
        A request to send, to be answered with its outcome; or a pause to make, answered with None.

    Returns:
        The call's value.

    Raises:
        BlockyardError: The refusal, or what ended the last try. See `may_have_been_done`.
    """
    attempts = Attempts(policy, surroundings.now_s())
    key = surroundings.new_key() if call.is_keyed else None
    request = call.request(origin, key, surroundings.trace())
    is_repeat = may_be_done = False
    while True:
        outcome = yield request
        try:
            return _value(call, outcome)
        except BlockyardError as error:
            if call.unreachable is not None and isinstance(error, ConnectionLost):
                return call.unreachable
            if is_repeat and call.if_gone is not None and isinstance(error, call.if_gone[0]):
                return call.if_gone[1]
            may_be_done = may_be_done or _leaves_open(outcome, error)
            pause_s = attempts.pause_s(error, surroundings.now_s(), surroundings.draw)
            if pause_s is None:
                if may_be_done and not is_verdict(error):
                    note_outcome_unknown(error)
                raise
        is_repeat = True
        yield Pause(pause_s)


def _value(call: Call[T], outcome: Outcome) -> T:
    if isinstance(outcome, Response):
        return call.read(outcome)
    assert outcome is not None, "a request was answered with nothing"
    raise outcome


def _leaves_open(outcome: Outcome, error: BlockyardError) -> bool:
    """Whether a try that ended so may have been carried out."""
    if isinstance(error, (ConnectionLost, UnexpectedReply)):
        return True
    return isinstance(outcome, Response) and outcome.status >= 500
