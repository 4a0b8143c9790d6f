"""Clients of several nodes, over sockets: both clients, over both transports."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from blockyard.client import (
    AsyncClient,
    Client,
    ClusterPoolReport,
    ClusterReport,
    NoCluster,
    NodeReport,
    NotReady,
    PoolElsewhere,
    RetryPolicy,
)
from client.peers import DROP, STATS, Answer, Peer, Received, elsewhere, owned, peer, problem, response
from waiting import wait_for

TOKEN = "byd_00ff_" + 32 * "5e"
WAYS = ["lean", "httpx", "async lean", "async httpx"]
NO_PAUSE = RetryPolicy(first_pause_s=600.0, max_pause_s=600.0, max_total_s=6_000.0)
QUICK = RetryPolicy(max_attempts=6, first_pause_s=0.01, max_pause_s=0.01)
GRANTED = {"lease_id": "l", "epoch": 1, "ttl_ms": 600_000, "expires_at_ms": 1}
NOT_READY = problem(503, "not_ready", retry_after_ms=1)

Action = Callable[[Any], Any]
"""Asks one of the two clients, and gives what it is told or what can be awaited."""


def stats(client: Any) -> Any:
    return client.pool("p").stats()


def lease(client: Any) -> Any:
    return client.pool("p").lease("me", renew=False)


def delete(client: Any) -> Any:
    return client.pool("p").delete(force=True)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(way: str, url: str | Sequence[str], *actions: Action, **options: Any) -> list[Any]:
    """What the ``actions`` of one client are told, one after the other."""
    transport: Literal["lean", "httpx"] = "lean" if way.endswith("lean") else "httpx"

    async def awaited() -> list[Any]:
        async with AsyncClient(url, transport=transport, **options) as client:
            return [await action(client) for action in actions]

    if way.startswith("async"):
        return asyncio.run(awaited())
    with Client(url, transport=transport, **options) as client:
        return [action(client) for action in actions]


def free_url() -> str:
    """Of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def changes(server: Peer) -> list[tuple[str, str, bytes, str | None]]:
    return [
        (each.method, each.target, each.body, each.headers.get("idempotency-key")) for each in server.received
    ]


def by_method(**answers: bytes) -> Answer:
    def answer(request: Received) -> bytes:
        return answers[request.method]

    return answer


def test_reads_and_changes_follow_their_pool_without_a_pause_as_they_are(way: str) -> None:
    answers = by_method(GET=owned(STATS, 1), POST=owned(GRANTED, 1, 201), DELETE=owned({}, 1))
    for action in (stats, lease, delete):
        with peer(answers) as owner, peer(elsewhere(owner.url, 1)) as node:
            told(way, node.url, action, retries=NO_PAUSE)
            assert changes(node) == changes(owner)
            assert len(owner.received) == 1


def test_a_pools_owner_is_remembered_and_the_token_is_shown_to_it(way: str) -> None:
    with peer(owned(STATS, 1)) as owner, peer(elsewhere(owner.url, 1)) as node:
        told(way, node.url, stats, stats, stats, token=TOKEN)
        assert [len(node.received), len(owner.received)] == [1, 3]
        assert {each.headers["authorization"] for each in owner.received} == {f"Bearer {TOKEN}"}


def test_each_pool_has_an_owner_of_its_own(way: str) -> None:
    def other(client: Any) -> Any:
        return client.pool("q").stats()

    with peer(owned(STATS, 1)) as owner, peer(elsewhere(owner.url, 1), owned(STATS, 1)) as node:
        told(way, node.url, stats, other, stats, other)
        assert [each.target for each in node.received] == ["/v1/pools/p/stats", *["/v1/pools/q/stats"] * 2]
        assert [each.target for each in owner.received] == ["/v1/pools/p/stats"] * 2


@pytest.mark.parametrize("as_text", [False, True])
def test_where_the_first_node_is_gone_the_next_is_asked(way: str, *, as_text: bool) -> None:
    with peer(owned(STATS, 1)) as node:
        urls = [free_url(), node.url]
        [seen] = told(way, ",".join(urls) if as_text else urls, stats, retries=QUICK)
    assert seen.num_blocks == 8


def test_where_an_owner_dies_its_successor_is_found_and_asked_under_the_same_key(way: str) -> None:
    with (
        peer(owned(STATS, 1), DROP) as first,
        peer(owned(GRANTED, 2, 201)) as second,
        peer(elsewhere(first.url, 1), NOT_READY, elsewhere(second.url, 2)) as node,
    ):
        told(way, [node.url], stats, lease, retries=QUICK)
        asked = {*changes(first)[1:], *changes(node)[1:], *changes(second)}
        assert len(asked) == 1
        assert [len(node.received), len(second.received)] == [3, 1]


def test_by_default_a_call_outlasts_a_take_over_where_several_nodes_are_given(way: str) -> None:
    with peer(*[NOT_READY] * 4, owned(STATS, 2)) as one, peer(*[NOT_READY] * 4, owned(STATS, 2)) as two:
        [seen] = told(way, [one.url, two.url], stats)
    assert seen.num_blocks == 8


def test_by_default_a_single_server_is_given_up_after_six_tries(way: str) -> None:
    with peer(NOT_READY) as server:
        with pytest.raises(NotReady):
            told(way, server.url, stats)
        assert len(server.received) == 6


def test_an_owner_of_before_that_wakes_up_is_not_believed(way: str) -> None:
    awake = owned({**STATS, "num_blocks": 1_000}, 1)
    with (
        peer(NOT_READY, awake, awake) as stale,
        peer(owned(STATS, 2), NOT_READY, owned(STATS, 2)) as owner,
    ):
        seen = told(way, [stale.url, owner.url], stats, stats, retries=QUICK)
        assert [each.num_blocks for each in seen] == [8, 8]
        assert len(stale.received) == 2


def test_nodes_that_name_each_other_are_given_up_after_a_few_rounds(way: str) -> None:
    other: list[str] = []

    def back(request: Received) -> bytes:
        return elsewhere(other[0], 1)(request)

    with peer(back) as one, peer(elsewhere(one.url, 1)) as two:
        other.append(two.url)
        policy = RetryPolicy(max_attempts=2, first_pause_s=0.01)
        with pytest.raises(PoolElsewhere):
            told(way, one.url, stats, retries=policy)
        assert len(one.received) + len(two.received) == 2 * 6


def test_a_cluster_is_told_as_a_node_knows_it(way: str) -> None:
    node = {"node": "a", "url": "http://a:1", "is_live": True, "is_leaving": False}
    node |= {"num_owned_pools": 1, "num_followed_pools": 0, "heard_ms_ago": 12}
    pool = {
        "pool": "p",
        "node": None,
        "url": None,
        "ownership": 3,
        "standby": "a",
        "role": "none",
        "lag": None,
    }
    document = {"cluster": "c", "node": "a", "is_connected": True, "lease_left_ms": 1_900}
    with peer(response(200, {**document, "nodes": [node], "pools": [pool], "more": 1})) as server:
        [seen] = told(way, server.url, lambda client: client.cluster())
        assert server.received[0].target == "/v1/cluster"
    assert seen == ClusterReport(
        **document,  # type: ignore[arg-type]
        nodes=[NodeReport(**node)],  # type: ignore[arg-type]
        pools=[ClusterPoolReport(**pool)],  # type: ignore[arg-type]
    )


def test_a_server_that_stands_alone_has_no_cluster(way: str) -> None:
    with peer(problem(404, "no_cluster")) as server, pytest.raises(NoCluster):
        told(way, server.url, lambda client: client.cluster())


def renewals(server: Peer) -> list[Received]:
    return [each for each in server.received if each.target.endswith("/renew")]


def test_a_lease_is_renewed_at_its_pools_next_owner() -> None:
    granted = {**GRANTED, "ttl_ms": 3_000}
    with (
        peer(owned(granted, 1, 201), DROP) as first,
        peer(owned(granted, 2)) as second,
        peer(elsewhere(first.url, 1), elsewhere(second.url, 2)) as node,
        Client(node.url) as client,
    ):
        kept = client.pool("p").lease("me", ttl_ms=3_000)
        wait_for(lambda: renewals(second))
        assert renewals(first)
        assert not kept.has_ended


def test_clients_show_all_that_they_were_given() -> None:
    with Client("http://a:1,http://b:1") as client:
        assert repr(client) == "<Client of http://a:1, http://b:1>"
        assert repr(client.pool("p")) == "<Pool 'p' at http://a:1, http://b:1>"
