"""What a call does when its pool moves and nodes die, decided without a socket or a clock."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.client import (
    NO_RETRY,
    BlockyardError,
    ConnectionLost,
    NotReady,
    PoolElsewhere,
    PoolNotFound,
    RetryPolicy,
    StaleOwner,
    UnexpectedReply,
    WorkerNotFound,
    may_have_been_done,
)
from blockyard.client.delivery import MAX_REDIRECTS
from blockyard.client.errors import NothingArrived
from blockyard.client.protocol import PoolCalls, ServerCalls
from blockyard.client.retry import ALONE, IN_CLUSTER
from blockyard.client.routes import Routes
from blockyard.client.wire import Request, Response
from client.simulated_cluster import (
    JSON,
    POOL,
    Cluster,
    World,
    answer,
    call,
    deliver,
    elsewhere,
    in_turn,
    not_ready,
)

A, B, C = "http://a:1", "http://b:1", "http://c:1"
LOST = ConnectionLost("lost")


def test_a_redirect_is_followed_without_a_pause_with_all_that_was_sent_before() -> None:
    told = deliver(call(), Routes([A]), in_turn(elsewhere(B, 2), answer(2)), World(), NO_RETRY)
    assert (told.value, told.pauses, told.origins) == (2, [0.0], [A, B])
    first, second = told.requests
    assert (second.method, second.target, second.headers, second.body) == (
        first.method,
        first.target,
        first.headers,
        first.body,
    )
    assert "Authorization" in second.headers


def test_the_next_call_starts_where_the_last_one_was_answered() -> None:
    routes = Routes([A])
    deliver(call(), routes, in_turn(elsewhere(B, 2), answer(2)), World())
    assert deliver(call(), routes, in_turn(answer(2)), World()).origins == [B]


@pytest.mark.parametrize("asked", [A, "https://a:1"])
@pytest.mark.parametrize(
    "location", ["http://b:1/v1/pools/q/stats", "http://b:1", "/v1/pools/p/stats", "https://b:1/v1/hash"]
)
def test_a_redirect_to_something_else_is_not_followed(asked: str, location: str) -> None:
    odd = Response(307, {**JSON, "location": location}, elsewhere(B, 1).body)
    told = deliver(call(), Routes([asked]), in_turn(odd), World())
    assert isinstance(told.value, PoolElsewhere)
    assert told.origins == [asked]


def test_what_was_sent_over_tls_does_not_follow_to_where_there_is_none() -> None:
    told = deliver(call(), Routes(["https://a:1"]), in_turn(elsewhere(B, 1)), World())
    assert isinstance(told.value, PoolElsewhere)
    assert told.origins == ["https://a:1"]


def test_a_redirect_without_our_code_is_not_followed() -> None:
    told = deliver(call(), Routes([A]), in_turn(Response(307, {"location": B + POOL})), World())
    assert isinstance(told.value, UnexpectedReply)
    assert told.origins == [A]


def test_many_redirects_in_a_row_are_a_failed_try() -> None:
    policy = RetryPolicy(max_attempts=2, first_pause_s=1.0)
    told = deliver(call(), Routes([A]), in_turn(elsewhere(B, 1)), World(), policy)
    assert isinstance(told.value, PoolElsewhere)
    assert told.pauses == [0.0] * MAX_REDIRECTS + [1.0] + [0.0] * MAX_REDIRECTS


def test_a_node_that_names_an_owner_of_before_is_a_failed_try_at_that_node() -> None:
    routes = Routes([A, C])
    deliver(call(), routes, in_turn(answer(3)), World())
    told = deliver(call(), routes, in_turn(LOST, elsewhere(B, 2), elsewhere(B, 3), answer(3)), World())
    assert (told.value, told.origins) == (3, [A, C, A, B])
    assert [pause == 0 for pause in told.pauses] == [False, False, True]


def test_where_the_owner_is_gone_the_next_of_those_given_is_asked_under_the_same_key() -> None:
    routes = Routes([A, B])
    deliver(call(), routes, in_turn(elsewhere(C, 1), answer(1)), World())
    told = deliver(call(), routes, in_turn(LOST, LOST, elsewhere(C, 2), answer(2)), World())
    assert (told.value, told.origins) == (2, [C, A, B, C])
    assert len(told.keys) == 1


@pytest.mark.parametrize("first", [LOST, not_ready(), Response(502, {}, b"")])
def test_what_a_node_cannot_answer_another_is_asked(first: Response | BlockyardError) -> None:
    told = deliver(call(), Routes([A, B]), in_turn(first, answer(1)), World())
    assert (told.value, told.origins) == (1, [A, B])
    assert told.pauses == [IN_CLUSTER.first_pause_s]


@pytest.mark.parametrize(
    "first",
    [Response(503, JSON, b'{"code": "overloaded"}'), Response(408, JSON, b'{"code": "request_timeout"}')],
)
def test_an_owner_that_has_much_to_do_is_asked_again_itself(first: Response) -> None:
    assert deliver(call(), Routes([A, B]), in_turn(first, answer(1)), World()).origins == [A, A]


def test_a_kept_connection_that_was_closed_is_replaced_at_the_same_node_once() -> None:
    closed = NothingArrived("closed")
    told = deliver(call(), Routes([A, B]), in_turn(closed, closed, answer(1)), World())
    assert told.origins == [A, A, B]


def test_a_call_that_is_tried_once_tells_later_ones_to_start_elsewhere() -> None:
    """So that a lease's renewal, which is tried once, reaches another node the next time."""
    routes = Routes([A, B])
    assert deliver(call(), routes, in_turn(LOST), World(), NO_RETRY).value is LOST
    assert deliver(call(), routes, in_turn(answer(1)), World(), NO_RETRY).origins == [B]


def test_a_probe_that_is_not_answered_is_followed_by_one_at_the_next_node() -> None:
    routes = Routes([A, B])
    assert deliver(ServerCalls().health(), routes, in_turn(LOST), World()).value is False
    healthy = deliver(ServerCalls().health(), routes, in_turn(Response(200, JSON, b"{}")), World())
    assert (healthy.value, healthy.origins) == (True, [B])


def test_a_reply_with_a_lower_number_is_no_reply() -> None:
    routes = Routes([A, B])
    deliver(call(), routes, in_turn(answer(2)), World())
    told = deliver(call(), routes, in_turn(answer(1), answer(2)), World())
    assert (told.value, told.origins) == (2, [A, B])


def test_a_refusal_with_a_lower_number_is_no_verdict() -> None:
    routes = Routes([A])
    deliver(call(), routes, in_turn(answer(2)), World())
    stale = Response(410, {**JSON, "blockyard-ownership": "1"}, b'{"code": "lease_expired"}')
    told = deliver(call(), routes, in_turn(stale), World(), NO_RETRY)
    assert isinstance(told.value, StaleOwner)
    assert may_have_been_done(told.value)


def test_a_number_of_another_pool_says_nothing() -> None:
    routes = Routes([A])
    routes.note_reply("/v1/pools/q", A, 9)
    assert deliver(call(), routes, in_turn(answer(1)), World()).value == 1


def test_a_pool_that_is_gone_takes_its_number_with_it() -> None:
    routes = Routes([A])
    deliver(call(), routes, in_turn(answer(7)), World())
    gone = Response(404, {**JSON, "blockyard-ownership": "7"}, b'{"code": "pool_not_found"}')
    assert isinstance(deliver(call(), routes, in_turn(gone), World()).value, PoolNotFound)
    assert deliver(call(), routes, in_turn(answer(1)), World(), NO_RETRY).value == 1


@pytest.mark.parametrize("told_number", ["", "-1", "1.0", "many", "1" * 30])
def test_a_number_that_is_none_is_not_understood(told_number: str) -> None:
    odd = Response(200, {**JSON, "blockyard-ownership": told_number}, b"1")
    assert isinstance(deliver(call(), Routes([A]), in_turn(odd), World()).value, UnexpectedReply)


def test_a_redirected_delete_that_finds_nothing_has_not_succeeded() -> None:
    """The node that redirects it has not carried it out."""
    remove = PoolCalls("p").remove_worker("w")
    gone = Response(404, JSON, b'{"code": "worker_not_found"}')
    told = deliver(remove, Routes([A]), in_turn(elsewhere(B, 1, remove.path), gone), World())
    assert isinstance(told.value, WorkerNotFound)
    assert not may_have_been_done(told.value)


def test_a_single_server_is_tried_six_times_and_a_cluster_for_a_time() -> None:
    alone = deliver(call(), Routes([A]), in_turn(not_ready()), World())
    assert isinstance(alone.value, NotReady)
    assert len(alone.requests) == ALONE.max_attempts
    world = World()
    cluster = deliver(call(), Routes([A, B]), in_turn(not_ready()), world)
    assert isinstance(cluster.value, NotReady)
    assert IN_CLUSTER.max_total_s - IN_CLUSTER.max_pause_s <= world.now_s <= IN_CLUSTER.max_total_s


@pytest.mark.parametrize("known", [elsewhere(B, 1), answer(1)])
def test_a_client_of_one_url_tries_as_in_a_cluster_once_it_has_seen_one(known: Response) -> None:
    routes = Routes([A])
    deliver(call(), routes, in_turn(known, answer(1)), World())
    outlasting = in_turn(*[not_ready()] * 30, answer(2))
    assert deliver(call(), routes, outlasting, World()).value == 2


def test_a_policy_of_ones_own_is_kept_in_a_cluster() -> None:
    policy = RetryPolicy(max_attempts=2, first_pause_s=3.0)
    assert deliver(call(), Routes([A, B]), in_turn(LOST), World(), policy).pauses == [2.0]


MOVES = st.lists(
    st.sampled_from(["take over", "take over unnoticed", "owner dies", "all live", "all hear"]), max_size=40
)


@settings(max_examples=300)
@given(given_urls=st.permutations([A, B, C]), num_given=st.integers(1, 3), moves=MOVES)
def test_whatever_happens_to_nodes_each_call_is_answered_and_none_by_an_owner_of_before(
    given_urls: list[str], num_given: int, moves: list[str]
) -> None:
    """One thing happens before each try; when all has happened, the cluster is whole."""
    cluster, routes, world = Cluster([A, B, C]), Routes(given_urls[:num_given]), World()
    left = iter(moves)

    def answering(request: Request) -> Response:
        cluster.do(next(left, "all live and hear"))
        return cluster.answer(request)

    told = [deliver(call(), routes, answering, world, IN_CLUSTER) for _ in range(8)]
    numbers = [one.value for one in told]
    assert all(isinstance(number, int) for number in numbers), numbers
    assert numbers == sorted(numbers)
    assert [len(one.keys) for one in told] == [1] * 8
