"""Errors that only a client can meet, and the way back from a problem's code to its class.

BlockyardError
├── (every error of blockyard.core.errors and blockyard.planning.errors, under its own class)
├── ConnectionLost             connection_lost     no reply arrived: the change may have been made or not
│   ├── NothingArrived                             the same, on a connection that had been kept for too long
│   ├── StaleOwner                                 what arrived is of a node that owns the pool no longer
│   └── TlsRefused                                 a certificate is missing, or not trusted: nothing was sent
├── EventsRefused              events_refused      the event sockets do not let this follower in
├── UnexpectedReply            unexpected_reply    what answered does not speak this protocol
└── OtherRefusal               (the server's)      a refusal whose code this version does not know
"""

from collections.abc import Mapping
from typing import Any

from blockyard.core.errors import (
    ERRORS,
    BlockyardError,
    Forbidden,
    NotReady,
    Overloaded,
    PoolElsewhere,
    RequestTimeout,
    Unauthorized,
)
from blockyard.planning.errors import PLAN_ERRORS

_GATEWAY_STATUSES = frozenset({502, 503, 504})


class ConnectionLost(BlockyardError):
    """No reply arrived, at the last try: unreachable, reset, or too slow.

    Whether the request was carried out is unknown. The client has repeated it under one key already.
    """

    code = "connection_lost"
    title = "No reply arrived"


class NothingArrived(ConnectionLost):
    """The peer closed a kept connection before the first byte of a response: idle for too long."""


class StaleOwner(ConnectionLost):
    """A node has answered that owns the pool no longer: what it says is as good as nothing.

    Figures: ``ownership``, as the node has it. A later owner has answered before.
    """

    title = "The reply is of a node that owns the pool no longer"


class TlsRefused(ConnectionLost):
    """Either side refused the other's certificate, or the lack of one. To try again is no use."""

    title = "TLS was refused"


class EventsRefused(BlockyardError):
    """The event sockets do not let a follower in: its keys are not those that the server wants.

    It is not tried again by itself: make another follower once the keys are right.
    """

    code = "events_refused"
    title = "The event sockets do not let this follower in"


class UnexpectedReply(BlockyardError):
    """A reply that is no HTTP, not of the documented form, or not from blockyard.

    Figures: ``status``, where there was one.
    """

    code = "unexpected_reply"
    title = "The reply is not understood"


class OtherRefusal(BlockyardError):
    """A refusal under a code that this version has no class for.

    Figures: those of the reply, its ``code`` and its ``status``.
    """

    code = "other"
    title = "The server refused"

    def __init__(self, detail: str, figures: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail, figures)
        vars(self)["code"] = self.figures.get("code", self.code)  # the instance's own, before the class's


_CLASSES = {error.code: error for error in (*ERRORS, *PLAN_ERRORS)}
_MEMBERS = frozenset({"type", "title", "status", "detail", "instance", "code"})
"""What every problem document has (RFC 9457, and ``code``); the rest are figures."""


def read_problem(status: int, problem: Mapping[str, Any]) -> BlockyardError:
    """The error that a problem document tells of.

    Args:
        status: The reply's HTTP status.
        problem: The document, decoded.

    Returns:
        An instance of the code's class with its figures; `OtherRefusal` for an unknown code;
        `UnexpectedReply` where there is no code at all.
    """
    code = problem.get("code")
    detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
    figures = {name: value for name, value in problem.items() if name not in _MEMBERS}
    if not isinstance(code, str):
        return UnexpectedReply(f"status {status} without a code: {detail}", {"status": status})
    known = _CLASSES.get(code)
    if known is None:
        return OtherRefusal(detail, {**figures, "code": code, "status": status})
    return known(detail, figures)


_AT_THE_DOOR = (Unauthorized, Forbidden)
_PASSING = (ConnectionLost, Overloaded, NotReady, PoolElsewhere, RequestTimeout)


def is_passing(error: BlockyardError) -> bool:
    """Whether the same request, sent again by itself, may succeed: no answer, not now, or not here."""
    return (isinstance(error, _PASSING) and not isinstance(error, TlsRefused)) or _is_gateways(error)


def is_of_node(error: BlockyardError) -> bool:
    """Whether the same request may succeed at another node: this one is gone, or not the owner."""
    return isinstance(error, (ConnectionLost, NotReady, PoolElsewhere)) or _is_gateways(error)


def is_verdict(error: BlockyardError) -> bool:
    """Whether a pool itself has refused, under a code that this version knows.

    A pool that has carried a request out answers its repeat with the first reply. So a refusal of a repeat
    tells that no earlier try was carried out, unless the request has no key. A refusal at the server's door
    tells nothing of that: the token may have been revoked since.
    """
    return isinstance(error, ERRORS) and not isinstance(error, _AT_THE_DOOR) and not is_passing(error)


def _is_gateways(error: BlockyardError) -> bool:
    """Whether ``error`` is of something before the server, which it did not reach."""
    return isinstance(error, UnexpectedReply) and error.figures.get("status") in _GATEWAY_STATUSES


def note_outcome_unknown(error: BlockyardError) -> None:
    """Mark ``error``: see `may_have_been_done`. For `blockyard.client.delivery`, which has seen all tries."""
    vars(error)["outcome_unknown"] = True


def may_have_been_done(error: BlockyardError) -> bool:
    """Whether the call that raised ``error`` may have been carried out nevertheless.

    So it is where the reply to one of its tries was lost or not understood, or told of a mistake of the
    server's, and no later try had a verdict.
    """
    return bool(vars(error).get("outcome_unknown", False))
