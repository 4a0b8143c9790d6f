"""What a call does between its first try and its value: decided without a socket or a clock."""

import json

import pytest

from blockyard.client import (
    ConnectionLost,
    InsufficientBlocks,
    LeaseExpired,
    NotReady,
    Overloaded,
    PoolNotFound,
    RetryPolicy,
    UnexpectedReply,
)
from blockyard.client.delivery import Pause, Routes, deliver
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.protocol import PoolCalls
from blockyard.client.retry import Attempts
from blockyard.client.wire import Request, Response
from blockyard.core.ids import LeaseId

LOST = ConnectionLost("lost")
POLICY = RetryPolicy(max_attempts=4, first_pause_s=0.1, max_pause_s=0.3, max_total_s=60)


def routes(token: str | None = None) -> Routes:
    return Routes("http://home:1", token)


def refusal(status: int, code: str) -> Response:
    return Response(status, {"content-type": "application/problem+json"}, json.dumps({"code": code}).encode())


def moved(url: str) -> Response:
    return Response(307, {"location": url})


def outcome_of(
    action: Request | Pause, outcome: Response | ConnectionLost
) -> Response | ConnectionLost | None:
    return None if isinstance(action, Pause) else outcome


def test_pauses_double_to_a_bound_and_are_drawn_from_zero() -> None:
    attempts = Attempts(POLICY, 0.0)
    assert [attempts.pause_s(LOST, 0.0, lambda: 1.0) for _ in range(3)] == [0.1, 0.2, 0.3]
    assert Attempts(POLICY, 0.0).pause_s(LOST, 0.0, lambda: 0.0) == 0.0


def test_tries_end_with_the_number_allowed() -> None:
    attempts = Attempts(RetryPolicy(max_attempts=2), 0.0)
    assert attempts.pause_s(LOST, 0.0, lambda: 0.0) is not None
    assert attempts.pause_s(LOST, 0.0, lambda: 0.0) is None


def test_tries_end_with_the_time_allowed() -> None:
    attempts = Attempts(RetryPolicy(max_total_s=5.0), 100.0)
    assert attempts.pause_s(LOST, 104.0, lambda: 0.0) is not None
    assert attempts.pause_s(LOST, 105.1, lambda: 0.0) is None


def test_the_servers_wish_comes_before_the_drawn_pause() -> None:
    error = Overloaded("busy", {"retry_after_ms": 250})
    assert Attempts(POLICY, 0.0).pause_s(error, 0.0, lambda: 1.0) == pytest.approx(0.35)


@pytest.mark.parametrize("error", [InsufficientBlocks.of(2, 1), LeaseExpired.of("l"), UnexpectedReply("odd")])
def test_what_a_repeat_cannot_mend_is_not_repeated(error: InsufficientBlocks) -> None:
    assert Attempts(POLICY, 0.0).pause_s(error, 0.0, lambda: 0.0) is None


@pytest.mark.parametrize(
    "error", [LOST, Overloaded("o"), NotReady("n"), UnexpectedReply("g", {"status": 502})]
)
def test_what_passes_is_repeated(error: ConnectionLost) -> None:
    assert Attempts(POLICY, 0.0).pause_s(error, 0.0, lambda: 0.0) is not None


def test_every_try_of_a_change_has_one_key_and_the_next_call_another() -> None:
    keys = []
    for _ in range(2):
        delivery = deliver(PoolCalls("p").create_lease("me", 5), routes(), POLICY)
        action = next(delivery)
        for _ in range(4):
            if isinstance(action, Request):
                keys.append(action.headers["Idempotency-Key"])
            action = delivery.send(outcome_of(action, LOST))
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_a_read_has_no_key() -> None:
    request = next(deliver(PoolCalls("p").stats(), routes(), POLICY))
    assert isinstance(request, Request)
    assert "Idempotency-Key" not in request.headers


def test_a_redirect_is_followed_and_remembered_for_the_pool() -> None:
    known = routes()
    delivery = deliver(PoolCalls("p").stats(), known, POLICY)
    next(delivery)
    request = delivery.send(moved("http://owner:2/v1/pools/p/stats"))
    assert isinstance(request, Request)
    assert (request.origin, request.target) == ("http://owner:2", "/v1/pools/p/stats")
    assert [known.origin("p"), known.origin("q")] == ["http://owner:2", "http://home:1"]


def test_a_pools_server_that_does_not_answer_is_forgotten() -> None:
    known = routes()
    delivery = deliver(PoolCalls("p").stats(), known, POLICY)
    next(delivery)
    delivery.send(moved("http://owner:2/v1/pools/p/stats"))
    delivery.send(LOST)
    assert known.origin("p") == "http://home:1"


def test_servers_that_redirect_in_a_ring_are_asked_again_later() -> None:
    delivery = deliver(PoolCalls("p").stats(), routes(), POLICY)
    action = next(delivery)
    num_requests = 0
    while isinstance(action, Request):
        num_requests += 1
        action = delivery.send(moved("/v1/pools/p/stats"))
    assert num_requests == 6


def test_a_redirect_out_of_an_encrypted_connection_is_refused() -> None:
    delivery = deliver(PoolCalls("p").stats(), Routes("https://home", "secret"), POLICY)
    next(delivery)
    with pytest.raises(UnexpectedReply, match="https"):
        delivery.send(moved("http://elsewhere/v1/pools/p/stats"))


def test_the_token_goes_with_every_request() -> None:
    request = next(deliver(PoolCalls("p").stats(), routes("secret"), POLICY))
    assert isinstance(request, Request)
    assert request.headers["Authorization"] == "Bearer secret"


def test_a_repeated_delete_that_finds_nothing_has_succeeded() -> None:
    delivery = deliver(PoolCalls("p").delete(), routes(), POLICY)
    next(delivery)
    delivery.send(LOST)
    delivery.send(None)
    with pytest.raises(StopIteration):
        delivery.send(refusal(404, "pool_not_found"))


def test_a_first_delete_that_finds_nothing_has_not() -> None:
    delivery = deliver(PoolCalls("p").delete(), routes(), POLICY)
    next(delivery)
    with pytest.raises(PoolNotFound):
        delivery.send(refusal(404, "pool_not_found"))


def test_a_repeated_release_that_finds_the_lease_gone_has_succeeded() -> None:
    delivery = deliver(LeaseCalls("p", LeaseId("l"), 1).release(), routes(), POLICY)
    next(delivery)
    delivery.send(LOST)
    delivery.send(None)
    with pytest.raises(StopIteration) as done:
        delivery.send(refusal(410, "lease_expired"))
    assert done.value.value.num_freed_blocks == 0


@pytest.mark.parametrize("url", ["localhost:8484", "ftp://host", "http://host/path", "http://"])
def test_what_is_no_servers_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Routes(url, None)
