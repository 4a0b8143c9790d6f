"""From a call to its value, over tries and pauses: without I/O, clock or randomness.

`Delivery` decides what a failed try means, so that the threaded and the asynchronous sender are loops of a
few lines and cannot differ in what they do next:

    delivery = Delivery(call, routes, policy, surroundings)
    while True:
        response = None
        try:
            response = ...send delivery.request...
            return delivery.read(response)
        except BlockyardError as error:
            verdict = delivery.failed(error, response)
            if verdict is None:
                raise
        if isinstance(verdict, Instead):
            return verdict.value
        ...wait verdict.seconds...
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from blockyard.client.call import Call
from blockyard.client.errors import (
    ConnectionLost,
    NothingArrived,
    StaleOwner,
    UnexpectedReply,
    is_of_node,
    is_verdict,
    note_outcome_unknown,
)
from blockyard.client.retry import ALONE, IN_CLUSTER, Attempts, RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.wire import Response
from blockyard.core.errors import BlockyardError, PoolElsewhere, PoolNotFound, RequestTimeout

T = TypeVar("T")

OWNERSHIP = "blockyard-ownership"
"""The header by which an owner says the how manieth it is."""
MAX_REDIRECTS = 5
"""So many in a row are followed without a pause; one more is a try that has failed."""
_NUMBER = re.compile(r"[0-9]{1,18}")


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


class Delivery(Generic[T]):
    """The tries of one call at the nodes of ``routes``, until it has an answer or they are exhausted.

    Args:
        call: To deliver.
        routes: Where to. What is learned on the way is noted there.
        policy: Bounds of the tries; None: those of a single server, or of a cluster.
        surroundings: What it takes from the world.

    Attributes:
        request: What the next try sends: under the same key, maybe at another node.
    """

    __slots__ = (
        "_attempts",
        "_call",
        "_may_be_done",
        "_num_redirects",
        "_policy",
        "_routes",
        "_started_s",
        "_surroundings",
        "request",
    )

    def __init__(
        self, call: Call[T], routes: Routes, policy: RetryPolicy | None, surroundings: Surroundings
    ) -> None:
        self._call = call
        self._routes = routes
        self._surroundings = surroundings
        self._policy = policy
        self._started_s = surroundings.now_s()
        self._attempts: Attempts | None = None  # until one has failed, as few do
        self._num_redirects = 0
        self._may_be_done = False
        key = surroundings.new_key() if call.is_keyed else None
        self.request = call.request(routes.start(call.path), key, surroundings.headers())

    def read(self, response: Response) -> T:
        """The value in ``response``, which the request has got.

        Raises:
            StaleOwner: It is of a node that owns the pool no longer.
            BlockyardError: It is a refusal.
        """
        told = response.headers.get(OWNERSHIP)
        if told is not None:
            self._check_owner(told, response)
        return self._call.read(response)

    def failed(self, error: BlockyardError, response: Response | None) -> Pause | Instead[T] | None:
        """What to do after a try that ended with ``error``.

        Args:
            error: The refusal, or why there is no answer.
            response: That the error was read from; None where none arrived.

        Returns:
            A pause before the next try; or the call's value; or None: raise the error, which was the last.
            See `blockyard.client.errors.may_have_been_done`.
        """
        call, routes = self._call, self._routes
        if isinstance(error, PoolElsewhere) and response is not None:
            owner = routes.named(response.headers.get("location"), self.request)
            if owner is None:
                self._mark_last(error)
                return None
            if self._follows(owner, error):
                return Pause(0.0)
        if is_of_node(error) and not (isinstance(error, NothingArrived) and self._attempts is None):
            routes.leave(call.path, self.request.origin)
        if isinstance(error, PoolNotFound):
            routes.forget(call.path)
        if call.unreachable is not None and isinstance(error, ConnectionLost):
            return Instead(call.unreachable)
        if self._attempts is not None and call.if_gone is not None and isinstance(error, call.if_gone[0]):
            return Instead(call.if_gone[1])
        self._may_be_done = self._may_be_done or _leaves_open(error, response)
        if self._attempts is None:
            policy = self._policy or (IN_CLUSTER if routes.is_cluster else ALONE)
            self._attempts = Attempts(policy, self._started_s, call.wait_s)
        pause_s = self._attempts.pause_s(error, self._surroundings.now_s(), self._surroundings.draw)
        if pause_s is None:
            self._mark_last(error)
            return None
        self._num_redirects = 0
        self._go_to(routes.start(call.path))
        return Pause(pause_s)

    def _check_owner(self, told: str, response: Response) -> None:
        if _NUMBER.fullmatch(told) is None:
            raise UnexpectedReply(f"{OWNERSHIP} is no number: {told[:80]!r}", {"status": response.status})
        origin, ownership = self.request.origin, int(told)
        if not self._routes.note_reply(self._call.path, origin, ownership):
            raise StaleOwner(
                f"{origin} has answered as the pool's owner of number {ownership}, and is not any more",
                {"ownership": ownership},
            )

    def _follows(self, owner: str, error: PoolElsewhere) -> bool:
        """Whether the next try is at ``owner``, as ``error`` says."""
        ownership = error.figures.get("ownership")
        if not isinstance(ownership, int) or self._num_redirects >= MAX_REDIRECTS:
            return False
        if not self._routes.note_redirect(self._call.path, owner, ownership):
            return False
        self._num_redirects += 1
        self._go_to(owner)
        return True

    def _go_to(self, origin: str) -> None:
        if origin != self.request.origin:
            self.request = replace(self.request, origin=origin)

    def _mark_last(self, error: BlockyardError) -> None:
        """Mark the error that ends the tries, if it leaves open whether an earlier one was carried out."""
        if self._may_be_done and not is_verdict(error):
            note_outcome_unknown(error)


def _leaves_open(error: BlockyardError, response: Response | None) -> bool:
    """Whether a try that ended so may have been carried out."""
    if isinstance(error, (ConnectionLost, UnexpectedReply)):
        return True
    if isinstance(error, RequestTimeout):  # a head or a body that was late has done nothing
        return error.figures.get("limit") not in ("head_timeout_s", "body_timeout_s")
    return response is not None and response.status >= 500
