"""Whichever node is asked: where it sends callers, whose answers are the owner's, and who makes pools."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import ormsgpack
import pytest

from cluster.nodes import TWO, Nodes, Reply, ask, follow, make_lease, make_pool, pool_of, running_nodes
from waiting import wait_for

SIZES = {"num_blocks": 100, "block_size": 4}
MSGPACK = "application/msgpack"
CALLS = ["allocate", "free", "lookup", "commit", "step", "blocks/allocate", "leases", "leases/l/renew"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two; leases are long, since none is to lapse here."""
    with running_nodes("--node-lease-ms", "5000", "--snapshot-commands", "20") as nodes:
        yield nodes


@pytest.fixture(scope="module")
def pool(nodes: Nodes) -> str:
    """The path of a pool of the second node, which both know of."""
    name = pool_of("node-2")
    path = make_pool(nodes, name, SIZES)
    nodes.settle(name, "node-2")
    return path


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("GET", ""),
        ("GET", "/stats?a=b&a=%26"),
        ("GET", "/sequences/a%2Fb%3Fc%20d"),
        ("GET", "/events"),
        ("GET", "/no/such/route"),
        ("HEAD", "/stats"),
        ("PUT", ""),
        ("PUT", "/tenants/one"),
        ("DELETE", "?force=true"),
        ("PATCH", "?x"),
        *(("POST", f"/{call}") for call in CALLS),
    ],
)
def test_any_call_about_a_pool_of_another_node_is_sent_there(
    nodes: Nodes, pool: str, method: str, rest: str
) -> None:
    reply = ask(nodes.url("node-1"), method, pool + rest, {})
    assert reply.status == 307
    assert reply.headers["Location"] == nodes.url("node-2") + pool + rest
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.ownership is None
    if method == "HEAD":
        assert not reply.data
        return
    told = reply.body
    assert (told["code"], told["status"]) == ("pool_elsewhere", 307)
    assert (told["pool"], told["node"]) == (pool.removeprefix("/v1/pools/"), "node-2")
    assert (told["url"], told["ownership"]) == (nodes.url("node-2") + pool + rest, 1)


def test_a_call_in_msgpack_is_sent_to_the_owner_as_well(nodes: Nodes, pool: str) -> None:
    sent = {"Content_Type": MSGPACK, "Accept": MSGPACK}
    reply = ask(nodes.url("node-1"), "POST", f"{pool}/step", ormsgpack.packb({}), **sent)
    assert (reply.status, reply.headers["Location"]) == (307, f"{nodes.url('node-2')}{pool}/step")


def test_a_pool_that_another_node_is_to_own_is_made_there(nodes: Nodes) -> None:
    path = f"/v1/pools/{pool_of('node-2')}"
    reply = ask(nodes.url("node-1"), "PUT", path, SIZES)
    assert (reply.status, reply.headers["Location"]) == (307, nodes.url("node-2") + path)
    assert (reply.body["node"], reply.body["ownership"]) == ("node-2", 0)
    assert {ask(nodes.url(name), "GET", path).status for name in TWO} == {404}


@pytest.mark.parametrize("form", ["application/json", MSGPACK])
def test_every_answer_of_the_owner_has_its_number_refusals_too(nodes: Nodes, form: str) -> None:
    url, path = nodes.url("node-2"), f"/v1/pools/{pool_of('node-2')}"

    def told(method: str, rest: str, body: Any = None) -> int:
        """The status of an answer that has the number."""
        data = ormsgpack.packb(body) if form == MSGPACK and method == "POST" else body
        sent = {"Content_Type": form, "Accept": form} if method == "POST" else {}
        reply = ask(url, method, path + rest, data, **sent)
        assert reply.ownership == 1, (method, rest, reply.data)
        return reply.status

    assert (told("PUT", "", SIZES), told("PUT", "", SIZES)) == (201, 200)
    assert told("PUT", "", {"num_blocks": 5, "block_size": 4}) == 409
    lease = make_lease(url, path)
    held = {"lease_id": lease, "sequence_id": "s"}
    assert told("POST", "/allocate", {**held, "num_tokens": 9}) == 200
    assert told("POST", "/allocate", {**held, "num_tokens": 9_000}) == 409
    assert told("POST", "/allocate", {**held, "num_tokens": "many"}) == 422
    assert told("POST", "/commit", {**held, "sequence_id": "t", "num_computed_tokens": 1}) == 404
    assert told("POST", "/free", {"lease_id": lease, "sequence_ids": ["s"], "epoch": 9}) == 409
    assert told("POST", "/lookup", {"num_tokens": 5, "token_ids": [1, 2, 3, 4, 5]}) == 200
    assert told("POST", "/step", {"lease_id": "none"}) == 410
    assert (told("GET", "/sequences/s"), told("GET", "/sequences/t")) == (200, 404)
    assert (told("GET", "/stats"), told("GET", "/audit"), told("GET", "/nothing")) == (200, 200, 404)
    assert (told("PATCH", ""), told("DELETE", ""), told("DELETE", "?force=true")) == (405, 409, 200)


@pytest.mark.parametrize(
    "path", ["/v1/pools", "/v1/cluster", "/healthz", "/readyz", "/metrics", "/dashboard"]
)
def test_an_answer_about_no_one_pool_has_no_owners_number(nodes: Nodes, pool: str, path: str) -> None:
    reply = ask(nodes.url("node-2"), "GET", path)
    assert (reply.status, reply.ownership) == (200, None)
    assert ask(nodes.url("node-2"), "GET", f"{pool}/stats").ownership == 1


@pytest.mark.parametrize("name", TWO)
def test_a_list_of_pools_is_of_those_of_the_node_that_is_asked(nodes: Nodes, pool: str, name: str) -> None:
    listed = {f"/v1/pools/{each['pool']}" for each in ask(nodes.url(name), "GET", "/v1/pools").body["pools"]}
    assert (pool in listed) is (name == "node-2")


@pytest.mark.parametrize("first", TWO)
def test_the_same_pool_is_made_once_whichever_node_is_asked(nodes: Nodes, first: str) -> None:
    path = f"/v1/pools/{pool_of(first)}"
    assert [follow(nodes.url(name), "PUT", path, SIZES).status for name in (*TWO, *TWO)] == [
        201,
        200,
        200,
        200,
    ]
    for name in TWO:
        reply = follow(nodes.url(name), "PUT", path, {**SIZES, "num_blocks": 99})
        assert (reply.status, reply.body["code"]) == (409, "pool_exists")


@pytest.mark.parametrize("sizes", [[100], [100, 101, 102]])
def test_nodes_that_are_asked_for_a_pool_at_the_same_time_make_one(nodes: Nodes, sizes: list[int]) -> None:
    path = f"/v1/pools/{pool_of('node-1')}"

    def make(url: str, num_blocks: int) -> int:
        return follow(url, "PUT", path, {**SIZES, "num_blocks": num_blocks}).status

    asked = list(product(sizes, map(nodes.url, TWO), range(4)))
    with ThreadPoolExecutor(len(asked)) as threads:
        made = list(threads.map(lambda each: make(each[1], each[0]), asked))
    assert made.count(201) == 1
    assert made.count(409) == len(made) - len(made) // len(sizes)
    kept = follow(nodes.url("node-1"), "GET", path).body["num_blocks"]
    assert kept == asked[made.index(201)][0]


def use(nodes: Nodes, path: str, num_commands: int) -> None:
    """Give the pool at ``path`` some commands."""
    url = nodes.url("node-1")
    lease = make_lease(url, path)
    for _ in range(num_commands):
        assert follow(url, "POST", f"{path}/leases/{lease}/renew").status == 200


@pytest.mark.parametrize("first", TWO)
def test_a_deleted_pool_is_gone_at_once_of_all_nodes_and_of_nats(nodes: Nodes, first: str) -> None:
    before = nodes.streams().keys()
    name = pool_of(first)
    path = make_pool(nodes, name, SIZES)
    nodes.settle(name, first)
    new = nodes.streams().keys() - before
    assert len(new) == 1
    use(nodes, path, 40)
    wait_for(lambda: nodes.snapshots(new))

    assert follow(nodes.url("node-1"), "DELETE", f"{path}?force=true").status == 200
    replies: list[Reply] = [follow(nodes.url(name), "GET", path) for name in TWO]
    assert [(reply.status, reply.body["code"]) for reply in replies] == [(404, "pool_not_found")] * 2
    assert not nodes.streams().keys() & new
    assert not nodes.snapshots(new)

    reply = follow(nodes.url("node-2"), "PUT", path, {**SIZES, "num_blocks": 7})
    assert (reply.status, reply.ownership) == (201, 2)
    assert follow(nodes.url("node-1"), "GET", f"{path}/stats").body["num_blocks"] == 7
    assert len(nodes.streams().keys() - before) == 1
