"""What a call does between its first try and its value: decided without a socket or a clock."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from blockyard.client import (
    BlockyardError,
    ConnectionLost,
    HeadTooLarge,
    InsufficientBlocks,
    LeaseExpired,
    LimitExceeded,
    NotReady,
    OtherRefusal,
    Overloaded,
    PoolNotFound,
    RequestTimeout,
    RetryPolicy,
    UnexpectedReply,
    may_have_been_done,
)
from blockyard.client.call import Call
from blockyard.client.delivery import Delivery, Instead, Pause, Surroundings
from blockyard.client.errors import NothingArrived
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.origins import origin_of
from blockyard.client.protocol import PoolCalls, ServerCalls
from blockyard.client.retry import Attempts
from blockyard.client.routes import Routes
from blockyard.client.wire import Request, Response
from blockyard.core.ids import LeaseId

LOST = ConnectionLost("lost")
POLICY = RetryPolicy(max_attempts=4, first_pause_s=0.1, max_pause_s=0.3, max_total_s=60)
KEYS = count()
TRACES = count()


def surroundings(times_s: Iterator[float] | None = None) -> Surroundings:
    """A clock that stands, or tells ``times_s``; the longest pauses; keys that were never given."""
    times_s = times_s or iter([0.0] * 100)
    return Surroundings(
        now_s=lambda: next(times_s),
        draw=lambda: 1.0,
        new_key=lambda: f"key-{next(KEYS)}",
        headers=lambda: {"traceparent": f"of-{next(TRACES)}"},
    )


def refusal(status: int, code: str) -> Response:
    return Response(status, {"content-type": "application/problem+json"}, json.dumps({"code": code}).encode())


def late(limit: str) -> Response:
    """The answer of a server that has waited too long for what ``limit`` says."""
    problem = {"code": "request_timeout", "limit": limit, "max": 60}
    return Response(408, {"content-type": "application/problem+json"}, json.dumps(problem).encode())


def deliver_with(
    call: Call[Any], *outcomes: Response | BlockyardError, policy: RetryPolicy = POLICY
) -> tuple[Any, list[Request | Pause]]:
    """The value or error that ``outcomes`` lead to, and what was done on the way."""
    delivery = Delivery(call, Routes(["http://home:1"]), policy, surroundings())
    actions: list[Request | Pause] = []
    for outcome in outcomes:
        actions.append(delivery.request)
        response = outcome if isinstance(outcome, Response) else None
        try:
            return delivery.read(answered(outcome)), actions
        except BlockyardError as error:
            verdict = delivery.failed(error, response)
            if verdict is None:
                return error, actions
        if isinstance(verdict, Instead):
            return verdict.value, actions
        actions.append(verdict)
    raise AssertionError("there were more tries than outcomes")


def answered(outcome: Response | BlockyardError) -> Response:
    if isinstance(outcome, BlockyardError):
        raise outcome
    return outcome


def test_pauses_double_to_a_bound_and_are_drawn_from_zero() -> None:
    attempts = Attempts(POLICY, 0.0)
    assert [attempts.pause_s(LOST, 0.0, lambda: 1.0) for _ in range(3)] == [0.1, 0.2, 0.3]
    assert Attempts(POLICY, 0.0).pause_s(LOST, 0.0, lambda: 0.0) == 0.0


def test_any_number_of_tries_has_pauses_within_their_bound() -> None:
    attempts = Attempts(RetryPolicy(max_attempts=None, max_pause_s=0.3), 0.0)
    pauses = [attempts.pause_s(LOST, 0.0, lambda: 1.0) for _ in range(2_000)]
    assert pauses[-1] == 0.3


def test_tries_end_with_the_number_allowed() -> None:
    attempts = Attempts(RetryPolicy(max_attempts=2), 0.0)
    assert attempts.pause_s(LOST, 0.0, lambda: 0.0) is not None
    assert attempts.pause_s(LOST, 0.0, lambda: 0.0) is None


def test_tries_end_with_the_time_allowed() -> None:
    attempts = Attempts(RetryPolicy(max_total_s=5.0), 100.0)
    assert attempts.pause_s(LOST, 104.0, lambda: 0.0) is not None
    assert attempts.pause_s(LOST, 105.1, lambda: 0.0) is None


def test_what_a_call_may_wait_at_the_server_is_beside_the_time_allowed() -> None:
    attempts = Attempts(RetryPolicy(max_total_s=10), now_s=100.0, wait_s=5.0)
    assert attempts.pause_s(LOST, now_s=114.9, draw=lambda: 0.0) is not None
    assert attempts.pause_s(LOST, now_s=115.1, draw=lambda: 0.0) is None


def test_the_servers_wish_comes_before_the_drawn_pause() -> None:
    error = Overloaded("busy", {"retry_after_ms": 250})
    assert Attempts(POLICY, 0.0).pause_s(error, 0.0, lambda: 1.0) == pytest.approx(0.35)


@pytest.mark.parametrize(
    "error",
    [
        InsufficientBlocks.of(2, 1, 3),
        LeaseExpired.of("l"),
        UnexpectedReply("odd"),
        LimitExceeded.of("max_pools", 1, "one pool too many"),
        HeadTooLarge.of(1_024),
    ],
)
def test_what_a_repeat_cannot_mend_is_not_repeated(error: BlockyardError) -> None:
    assert Attempts(POLICY, 0.0).pause_s(error, 0.0, lambda: 0.0) is None


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        Overloaded("o"),
        NotReady("n"),
        RequestTimeout.of("request_timeout_s", 60, "there was no answer"),
        UnexpectedReply("g", {"status": 502}),
    ],
)
def test_what_passes_is_repeated(error: BlockyardError) -> None:
    assert Attempts(POLICY, 0.0).pause_s(error, 0.0, lambda: 0.0) is not None


def test_a_kept_connection_that_was_closed_is_replaced_at_once_and_only_once() -> None:
    attempts = Attempts(POLICY, 0.0)
    closed = NothingArrived("closed")
    assert [attempts.pause_s(closed, 0.0, lambda: 1.0) for _ in range(3)] == [0.0, 0.2, 0.3]


def test_a_kept_connection_that_was_closed_counts_as_a_try() -> None:
    once = RetryPolicy(max_attempts=1)
    assert Attempts(once, 0.0).pause_s(NothingArrived("closed"), 0.0, lambda: 1.0) is None


@pytest.mark.parametrize(
    "bounds",
    [{"max_attempts": 0}, {"first_pause_s": -0.1}, {"max_pause_s": -1.0}, {"max_total_s": -1.0}],
)
def test_bounds_that_allow_no_try_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="max_attempts is at least 1"):
        RetryPolicy(**bounds)


def test_no_try_starts_after_the_time_in_all() -> None:
    policy = RetryPolicy(max_attempts=99, first_pause_s=1.0, max_pause_s=1.0, max_total_s=5.0)
    world = surroundings(iter([10.0, 12.0, 14.5]))
    delivery = Delivery(PoolCalls("p").stats(), Routes(["http://home:1"]), policy, world)
    assert delivery.failed(LOST, None) == Pause(1.0)
    assert delivery.failed(LOST, None) is None


def test_every_try_of_a_change_has_one_key_and_the_next_call_another() -> None:
    call = PoolCalls("p").create_lease("me", 5)
    keys = []
    for _ in range(2):
        _, actions = deliver_with(call, LOST, LOST, refusal(404, "pool_not_found"))
        keys.append([a.headers["Idempotency-Key"] for a in actions if isinstance(a, Request)])
    assert [len(tries) for tries in keys] == [3, 3]
    assert [len(set(tries)) for tries in keys] == [1, 1]
    assert keys[0][0] != keys[1][0]


def step_call(step_id: int | None = 1) -> Call[Any]:
    return LeaseCalls("p", LeaseId("l"), 1).step(step_id=step_id)


MISTAKE = refusal(500, "internal_error")
DENIED = refusal(401, "unauthorized")
FORBIDDEN = refusal(403, "forbidden")
UNREADABLE = Response(200, {"content-type": "application/json"}, b"{")


@pytest.mark.parametrize(
    "outcomes",
    [
        [LOST, LOST, LOST, LOST],
        [LOST, MISTAKE],
        [LOST, DENIED],
        [LOST, FORBIDDEN],
        [MISTAKE],
        [UNREADABLE],
        [refusal(503, "overloaded"), LOST, DENIED],
        [NothingArrived("closed"), DENIED],
        [late("request_timeout_s"), DENIED],
        [late("request_timeout_s"), late("body_timeout_s"), refusal(401, "unauthorized")],
    ],
)
def test_what_may_have_been_done_is_marked(outcomes: list[Response | BlockyardError]) -> None:
    error, _ = deliver_with(step_call(), *outcomes)
    assert may_have_been_done(error)


@pytest.mark.parametrize(
    "outcomes",
    [
        [DENIED],
        [refusal(422, "invalid_request")],
        [LOST, refusal(422, "invalid_request")],  # had the first been done, this one had got its reply
        [LOST, refusal(410, "lease_expired")],
        [LOST, refusal(429, "limit_exceeded")],
        [late("body_timeout_s"), late("head_timeout_s"), DENIED],
    ],
)
def test_what_was_certainly_not_done_is_not_marked(outcomes: list[Response | BlockyardError]) -> None:
    error, _ = deliver_with(step_call(), *outcomes)
    assert isinstance(error, BlockyardError)
    assert not may_have_been_done(error)


def test_a_servers_mistake_is_not_repeated() -> None:
    error, actions = deliver_with(step_call(), MISTAKE)
    assert isinstance(error, OtherRefusal)
    assert len(actions) == 1


def test_a_read_has_no_key() -> None:
    _, [request, *_] = deliver_with(PoolCalls("p").stats(), DENIED)
    assert isinstance(request, Request)
    assert "Idempotency-Key" not in request.headers


@pytest.mark.parametrize("lost", [LOST, NothingArrived("closed")])
def test_a_repeated_delete_that_finds_nothing_has_succeeded(lost: ConnectionLost) -> None:
    value, _ = deliver_with(PoolCalls("p").delete(), lost, refusal(404, "pool_not_found"))
    assert value is None


def test_a_first_delete_that_finds_nothing_has_not() -> None:
    error, _ = deliver_with(PoolCalls("p").delete(), refusal(404, "pool_not_found"))
    assert isinstance(error, PoolNotFound)


@pytest.mark.parametrize("before", [[], [LOST]])
def test_a_release_that_finds_the_lease_gone_has_succeeded(before: list[BlockyardError]) -> None:
    call = LeaseCalls("p", LeaseId("l"), 1).release()
    released, _ = deliver_with(call, *before, refusal(410, "lease_expired"))
    assert (released.num_freed_blocks, released.num_freed_sequences) == (0, 0)


@pytest.mark.parametrize("probe", [ServerCalls().health(), ServerCalls().ready()])
def test_a_server_that_is_not_reached_is_neither_healthy_nor_ready_after_one_try(probe: Call[bool]) -> None:
    value, actions = deliver_with(probe, LOST)
    assert value is False
    assert len(actions) == 1


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8484",
        "ftp://host",
        "http://host/path",
        "http://",
        "http://host?query",
        "http://user:secret@host",
        "http://:secret@host",
        "http://host:99999",
        "http://host:port",
    ],
)
def test_what_is_no_servers_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not the URL"):
        origin_of(url)


def test_a_servers_url_may_end_in_a_slash() -> None:
    assert origin_of("http://host:1/") == "http://host:1"
