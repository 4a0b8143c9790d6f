"""Nodes that ask a pool's owner for the caller: what comes back is what the owner says, as it says it."""

import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import ormsgpack
import pytest

from access.token_files import add_token, bearing
from blockyard.client import Client, Form
from blockyard.core.errors import InsufficientBlocks
from cluster.nodes import Nodes, Reply, ask, make_lease, pool_of, running_nodes
from events.sse_reader import subscribed
from server_process import TIMEOUT_S
from waiting import wait_for

NODE, OWNER = "node-1", "node-2"
MSGPACK = "application/msgpack"
REQUEST_S = 2


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of tokens, which both nodes have."""
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def token(tokens: Path) -> str:
    """One that may do everything."""
    return add_token(tokens, "admin")


@pytest.fixture(scope="module")
def nodes(tokens: Path, token: str) -> Iterator[Nodes]:
    """Two that forward; one stream at a time, and little time for requests. Leases do not lapse here."""
    assert token
    options = ("--proxy", "--token-file", str(tokens), "--node-lease-ms", "3000")
    bounds = ("--max-subscribers", "1", "--request-timeout-s", str(REQUEST_S))
    with running_nodes(*options, *bounds, token=token) as nodes:
        yield nodes


@pytest.fixture
def path(nodes: Nodes, token: str) -> str:
    """Of a new pool of the owner's with ten blocks to be had, made by way of the other node."""
    path = f"/v1/pools/{pool_of(OWNER)}"
    body = {"num_blocks": 11, "block_size": 4, "events": True}
    reply = ask(nodes.url(NODE), "PUT", path, body, **bearing(token))
    assert (reply.status, reply.ownership) == (201, 1)
    assert ask(nodes.url(OWNER), "GET", "/v1/pools", **bearing(token)).data.count(path[10:].encode()) == 1
    return path


@pytest.fixture
def lease(nodes: Nodes, path: str, token: str) -> str:
    """Of the pool, made by way of the node that does not own it."""
    return make_lease(nodes.url(NODE), path, token=token)


def test_each_answer_is_the_owners(nodes: Nodes, path: str, lease: str, token: str) -> None:
    def told(method: str, rest: str, body: Any = None, **headers: str) -> Reply:
        """What the node says: as much as the owner."""
        reply = ask(nodes.url(NODE), method, path + rest, body, **bearing(token), **headers)
        assert reply.ownership == 1
        assert len(reply.headers.get_all("Date", [])) == 1
        return reply

    held = {"lease_id": lease, "sequence_id": "a/b c"}
    allocated = told("POST", "/allocate", {**held, "num_tokens": 9}, Idempotency_Key="once")
    assert (allocated.status, len(allocated.body["block_ids"][0])) == (200, 3)
    again = ask(
        *(nodes.url(OWNER), "POST", f"{path}/allocate", {**held, "num_tokens": 9}),
        **bearing(token),
        Idempotency_Key="once",
    )
    assert again.data == allocated.data
    in_msgpack = told(
        *("POST", "/step", ormsgpack.packb({"lease_id": lease})), Content_Type=MSGPACK, Accept=MSGPACK
    )
    assert (in_msgpack.status, in_msgpack.headers["Content-Type"]) == (200, MSGPACK)
    assert ormsgpack.unpackb(in_msgpack.data)["num_free_blocks"] == 7
    refused = told("POST", "/allocate", {**held, "num_tokens": 900})
    assert (refused.status, refused.headers["Content-Type"]) == (409, "application/problem+json")
    assert refused.body["code"] == "insufficient_blocks"
    assert told("POST", "/allocate", {**held, "num_tokens": []}).body["code"] == "invalid_request"
    assert told("GET", "/sequences/a%2Fb%20c").body["num_tokens"] == 9
    assert told("GET", "/sequences/none").body["code"] == "sequence_not_found"
    direct = ask(nodes.url(OWNER), "HEAD", f"{path}/stats", **bearing(token))
    by_way = told("HEAD", "/stats")
    assert (by_way.status, by_way.data) == (direct.status, b"")
    assert told("DELETE", "").body["code"] == "pool_in_use"
    assert told("DELETE", "?force=true").status == 200
    gone = ask(nodes.url(NODE), "GET", path, **bearing(token))
    assert (gone.status, gone.body["code"]) == (404, "pool_not_found")


@pytest.mark.parametrize("kind", ["lean", "httpx"])
@pytest.mark.parametrize("form", list(Form))
def test_a_client_is_served_by_way_of_one_node_alone(
    nodes: Nodes, path: str, token: str, kind: Literal["lean", "httpx"], form: Form
) -> None:
    with Client(nodes.url(NODE), token=token, transport=kind, form=form) as client:
        pool = client.pool(path.rpartition("/")[2])
        with pool.lease("me") as lease:
            assert lease.allocate("s", 9).block_ids[0] == [1, 2, 3]
            with pytest.raises(InsufficientBlocks):
                lease.allocate("t", 900)
            assert lease.free(["s"]).num_free_blocks == 10
        assert pool.audit().ok


def test_the_callers_token_is_the_one_that_counts_at_the_owner(
    nodes: Nodes, path: str, lease: str, tokens: Path
) -> None:
    assert lease
    reader, stranger = add_token(tokens, "read"), add_token(tokens, "read", pools=("others",))
    wait_for(lambda: ask(nodes.url(OWNER), "GET", f"{path}/stats", **bearing(stranger)).status == 404)
    wait_for(lambda: ask(nodes.url(NODE), "GET", "/v1/pools", **bearing(stranger)).status == 200)
    for token, status in ((reader, 200), (stranger, 404), (None, 401)):
        assert ask(nodes.url(NODE), "GET", f"{path}/stats", **bearing(token)).status == status
    refused = ask(nodes.url(NODE), "DELETE", path, **bearing(reader))
    assert (refused.status, refused.body["code"]) == (403, "forbidden")


def test_what_was_forwarded_already_is_not_forwarded_again(nodes: Nodes, path: str, token: str) -> None:
    reply = ask(nodes.url(NODE), "GET", f"{path}/stats?x=y", **bearing(token), Blockyard_Forwarded="another")
    assert (reply.status, reply.body["code"]) == (307, "pool_elsewhere")
    assert reply.headers["Location"] == f"{nodes.url(OWNER)}{path}/stats?x=y"
    unmade = ask(
        *(nodes.url(NODE), "PUT", f"/v1/pools/{pool_of(OWNER)}", {"num_blocks": 11, "block_size": 4}),
        **bearing(token),
        Blockyard_Forwarded="another",
    )
    assert unmade.status == 307


def test_events_come_as_they_happen_and_a_subscriber_that_is_gone_leaves_room(
    nodes: Nodes, path: str, lease: str, token: str
) -> None:
    for number in range(2):  # the second is refused while the first is still open at the owner
        wait_for(lambda: num_subscribers(nodes, token) == 0)
        with subscribed(nodes.processes[NODE].port, f"{path}/events", token=token) as messages:
            assert next(message for message in messages if message.data["is_last"]).kind == "snapshot"
            held = {"lease_id": lease, "sequence_id": f"s{number}"}
            prompt = {"num_tokens": 5, "token_ids": [number] * 5}
            for call, more in (("allocate", prompt), ("commit", {"num_computed_tokens": 5})):
                body = {**held, **more}
                assert ask(nodes.url(NODE), "POST", f"{path}/{call}", body, **bearing(token)).status == 200
            assert next(messages).kind == "batch"


def test_what_goes_on_for_long_ends_with_the_node_that_forwards_it(
    nodes: Nodes, path: str, full: str, token: str
) -> None:
    body = {"lease_id": full, "num_blocks": 4, "wait_ms": 50_000}
    with (
        ThreadPoolExecutor(1) as threads,
        subscribed(nodes.processes[NODE].port, f"{path}/events", token=token) as messages,
    ):
        waiting = threads.submit(
            ask, nodes.url(NODE), "POST", f"{path}/blocks/allocate", body, **bearing(token)
        )
        wait_for(lambda: num_waiting(nodes, path, token) == 1)
        nodes.processes[NODE].process.send_signal(signal.SIGTERM)
        assert all(message.kind == "snapshot" for message in messages)
        assert waiting.result().is_moving
    assert nodes.processes[NODE].process.wait(TIMEOUT_S) == 0
    nodes.start(NODE)


def num_subscribers(nodes: Nodes, token: str) -> int:
    """Streams of events that are open at the owner."""
    lines = ask(nodes.url(OWNER), "GET", "/metrics", **bearing(token)).data.decode().splitlines()
    told = [line for line in lines if line.startswith("blockyard_pool_event_followers{")]
    return sum(int(float(line.split()[-1])) for line in told)


@pytest.fixture
def full(nodes: Nodes, path: str, lease: str, token: str) -> str:
    """The lease that holds all blocks of the pool."""
    body = {"lease_id": lease, "num_blocks": 10}
    assert ask(nodes.url(NODE), "POST", f"{path}/blocks/allocate", body, **bearing(token)).status == 200
    return lease


def num_waiting(nodes: Nodes, path: str, token: str) -> int:
    told = ask(nodes.url(OWNER), "GET", f"{path}/tenants", **bearing(token)).body["tenants"]
    return sum(tenant["num_waiting"] for tenant in told)


def test_a_call_waits_for_blocks_for_longer_than_others_may_take(
    nodes: Nodes, path: str, full: str, token: str
) -> None:
    body = {"lease_id": full, "num_blocks": 4, "wait_ms": REQUEST_S * 1_000 + 1_000}
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(
            ask, nodes.url(NODE), "POST", f"{path}/blocks/allocate", body, **bearing(token)
        )
        refused = waiting.result()  # nobody frees any
    assert (refused.status, refused.body["code"]) == (409, "insufficient_blocks")


def test_a_call_that_waits_gets_blocks_that_are_freed(nodes: Nodes, path: str, full: str, token: str) -> None:
    body = {"lease_id": full, "num_blocks": 4, "wait_ms": 30_000}
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(
            ask, nodes.url(NODE), "POST", f"{path}/blocks/allocate", body, **bearing(token)
        )
        wait_for(lambda: num_waiting(nodes, path, token) == 1)
        freed = {"lease_id": full, "block_ids": [1, 2, 3, 4]}
        assert ask(nodes.url(NODE), "POST", f"{path}/blocks/free", freed, **bearing(token)).status == 200
        reply = waiting.result()
    assert (reply.status, sorted(reply.body["block_ids"])) == (200, [1, 2, 3, 4])


@contextmanager
def hanging_up(url: str, path: str, lease: str, token: str) -> Iterator[None]:
    """A call that waits for blocks for long, and whose caller hangs up behind the block."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    body = json.dumps({"lease_id": lease, "num_blocks": 1, "wait_ms": 50_000})
    connection.request("POST", path, body, {"Content-Type": "application/json", **bearing(token)})
    try:
        yield
    finally:
        connection.close()


def test_a_caller_who_hangs_up_waits_no_more(nodes: Nodes, path: str, full: str, token: str) -> None:
    with hanging_up(nodes.url(NODE), f"{path}/blocks/allocate", full, token):
        wait_for(lambda: num_waiting(nodes, path, token) == 1)
    wait_for(lambda: num_waiting(nodes, path, token) == 0, timeout_s=REQUEST_S * 5)
    freed = {"lease_id": full, "block_ids": [1]}
    assert ask(nodes.url(NODE), "POST", f"{path}/blocks/free", freed, **bearing(token)).status == 200
    assert ask(nodes.url(OWNER), "GET", f"{path}/stats", **bearing(token)).body["num_free_blocks"] == 1


def test_an_owner_that_is_gone_is_told_of_and_not_guessed_at(nodes: Nodes, path: str, token: str) -> None:
    """Last, since it kills the owner."""
    nodes.kill(OWNER)
    reply = ask(nodes.url(NODE), "GET", f"{path}/stats", **bearing(token))
    assert reply.is_moving
    assert reply.body["retry_after_ms"] > 0
    wait_for(lambda: ask(nodes.url(NODE), "GET", f"{path}/stats", **bearing(token)).ownership == 2)
