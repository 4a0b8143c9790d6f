"""Calls that wait for blocks, against a server process, over sockets."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from server_process import ServerProcess, running_server
from waiting import wait_for

POOL = "/v1/pools/pool"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--max-waiting-calls", "4", "--max-waiting-calls-per-tenant", "3") as server:
        yield server


@pytest.fixture
def lease(server: ServerProcess) -> Iterator[str]:
    """Of a new pool with ten blocks to be had, all of which it holds."""
    assert server.call("PUT", POOL, {"num_blocks": 11, "block_size": 4})[0] == 201
    lease = make_lease(server)
    assert server.call("POST", f"{POOL}/blocks/allocate", {"lease_id": lease, "num_blocks": 10})[0] == 200
    yield lease
    assert server.call("GET", f"{POOL}/audit")[1]["ok"]
    assert server.call("DELETE", f"{POOL}?force=true")[0] == 200


@pytest.fixture
def later() -> Iterator[Callable[..., "Future[Any]"]]:
    """Does a call in a thread."""
    with ThreadPoolExecutor(8) as threads:
        yield threads.submit


def make_lease(server: ServerProcess, ttl_ms: int = 60_000) -> str:
    status, granted = server.call("POST", f"{POOL}/leases", {"holder": "test", "ttl_ms": ttl_ms})
    assert status == 201
    return str(granted["lease_id"])


def give_back(server: ServerProcess, lease: str, *blocks: int) -> None:
    assert server.call("POST", f"{POOL}/blocks/free", {"lease_id": lease, "block_ids": [*blocks]})[0] == 200


def num_waiting(server: ServerProcess) -> int:
    tenants = server.call("GET", f"{POOL}/tenants")[1]["tenants"]
    return sum(tenant["num_waiting"] for tenant in tenants)


def test_an_allocation_waits_until_there_are_blocks(
    server: ServerProcess, lease: str, later: Callable[..., "Future[Any]"]
) -> None:
    ask = {"lease_id": lease, "sequence_id": "s", "num_tokens": 12, "wait_ms": 20_000}
    waiting = later(server.call, "POST", f"{POOL}/allocate", ask)
    wait_for(lambda: num_waiting(server) == 1)
    give_back(server, lease, 1, 2)
    assert not waiting.done()
    give_back(server, lease, 3)
    status, reply = waiting.result()
    assert (status, sorted(reply["block_ids"][0])) == (200, [1, 2, 3])
    assert num_waiting(server) == 0


def test_it_is_refused_with_figures_when_its_time_is_up(server: ServerProcess, lease: str) -> None:
    ask = {"lease_id": lease, "num_blocks": 2, "wait_ms": 300}
    began_s = time.monotonic()
    status, reply = server.call("POST", f"{POOL}/blocks/allocate", ask)
    assert time.monotonic() - began_s >= 0.3
    assert (status, reply["code"], reply["num_required_blocks"]) == (409, "insufficient_blocks", 2)


def test_what_can_never_be_given_is_refused_at_once(server: ServerProcess, lease: str) -> None:
    ask = {"lease_id": lease, "num_blocks": 11, "wait_ms": 60_000}
    assert server.call("POST", f"{POOL}/blocks/allocate", ask)[1]["code"] == "insufficient_blocks"


def test_a_call_may_not_wait_for_longer_than_the_server_lets_it(server: ServerProcess, lease: str) -> None:
    ask = {"lease_id": lease, "num_blocks": 1, "wait_ms": 60_001}
    status, reply = server.call("POST", f"{POOL}/blocks/allocate", ask)
    assert (status, reply["code"], reply["limit"]) == (429, "limit_exceeded", "max_wait_ms")


def test_calls_that_wait_are_bounded(
    server: ServerProcess, lease: str, later: Callable[..., "Future[Any]"]
) -> None:
    ask = {"lease_id": lease, "num_blocks": 1, "wait_ms": 20_000}
    waiting = [later(server.call, "POST", f"{POOL}/blocks/allocate", ask) for _ in range(3)]
    wait_for(lambda: num_waiting(server) == 3)
    status, reply = server.call("POST", f"{POOL}/blocks/allocate", ask)
    assert (status, reply["code"]) == (503, "overloaded")
    assert reply["retry_after_ms"] > 0
    give_back(server, lease, 1, 2, 3)
    assert [call.result()[0] for call in waiting] == [200] * 3


def test_what_calls_that_wait_have_sent_is_bounded(later: Callable[..., "Future[Any]"]) -> None:
    with running_server("--max-waiting-bytes", "3000") as server:
        assert server.call("PUT", POOL, {"num_blocks": 11, "block_size": 4})[0] == 201
        lease = make_lease(server)
        ask = {"lease_id": lease, "num_blocks": 10, "wait_ms": 20_000}
        assert server.call("POST", f"{POOL}/blocks/allocate", ask)[0] == 200
        long = {"lease_id": lease, "num_tokens": 40, "block_hashes": ["ab" * 64] * 8, "wait_ms": 20_000}
        waiting = later(server.call, "POST", f"{POOL}/allocate", {**long, "sequence_id": "a"})
        wait_for(lambda: num_waiting(server) == 1)
        status, reply = server.call("POST", f"{POOL}/allocate", {**long, "sequence_id": "b"})
        assert (status, reply["code"]) == (503, "overloaded")
        give_back(server, lease, *range(1, 11))
        assert waiting.result()[0] == 200


def test_a_waiter_that_hangs_up_leaves_nothing_behind(server: ServerProcess, lease: str) -> None:
    body = json.dumps({"lease_id": lease, "sequence_id": "gone", "num_tokens": 40, "wait_ms": 20_000})
    for path in ("allocate", "blocks/allocate"):
        if path != "allocate":
            body = json.dumps({"lease_id": lease, "num_blocks": 9, "wait_ms": 20_000})
        head = f"POST {POOL}/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + body.encode())
            wait_for(lambda: num_waiting(server) == 1)
        wait_for(lambda: num_waiting(server) == 0)
    give_back(server, lease, *range(1, 11))
    assert server.call("GET", f"{POOL}/sequences/gone")[1]["code"] == "sequence_not_found"
    assert server.call("GET", f"{POOL}/stats")[1]["num_free_blocks"] == 10


def test_a_connection_goes_on_after_a_wait(server: ServerProcess, lease: str) -> None:
    """The short path hands over to the long one, and takes the next call again."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for wait_ms in (100, 0, 100):
        body = json.dumps({"lease_id": lease, "sequence_id": "s", "num_tokens": 4, "wait_ms": wait_ms})
        connection.request("POST", f"{POOL}/allocate", body)
        with connection.getresponse() as reply:
            assert json.loads(reply.read())["code"] == "insufficient_blocks"
    connection.close()


def test_a_repeat_of_a_call_that_has_waited_gets_its_reply_again(
    server: ServerProcess, lease: str, later: Callable[..., "Future[Any]"]
) -> None:
    ask = {"lease_id": lease, "sequence_id": "s", "num_tokens": 4, "wait_ms": 20_000}

    def call() -> tuple[int, Any]:
        return server.call("POST", f"{POOL}/allocate", ask, Idempotency_Key="k")

    waiting = later(call)
    wait_for(lambda: num_waiting(server) == 1)
    give_back(server, lease, 7)
    first = waiting.result()
    assert first[0] == 200
    other = {"lease_id": lease, "num_blocks": 1, "wait_ms": 2_000}
    others = later(server.call, "POST", f"{POOL}/blocks/allocate", other)
    wait_for(lambda: num_waiting(server) == 1)
    assert call() == first
    assert others.result()[1]["code"] == "insufficient_blocks"


@pytest.mark.usefixtures("lease")
def test_a_lease_that_ends_ends_the_wait(server: ServerProcess) -> None:
    ask = {"lease_id": make_lease(server, ttl_ms=300), "num_blocks": 1, "wait_ms": 20_000}
    assert server.call("POST", f"{POOL}/blocks/allocate", ask)[1]["code"] == "lease_expired"


def test_deleting_the_pool_ends_the_wait(server: ServerProcess) -> None:
    server.call("PUT", "/v1/pools/other", {"num_blocks": 2, "block_size": 4})
    lease = server.call("POST", "/v1/pools/other/leases", {"holder": "t", "ttl_ms": 60_000})[1]["lease_id"]
    ask = {"lease_id": lease, "num_blocks": 1, "wait_ms": 20_000}
    server.call("POST", "/v1/pools/other/blocks/allocate", ask)
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(server.call("POST", "/v1/pools/other/blocks/allocate", ask))
    )
    waiting.start()
    path = "/v1/pools/other/tenants"
    wait_for(lambda: server.call("GET", path)[1]["tenants"][0]["num_waiting"] == 1)
    server.call("DELETE", "/v1/pools/other?force=true")
    waiting.join()
    assert answers[0][1]["code"] == "pool_not_found"


def test_a_server_that_stops_lets_nobody_wait() -> None:
    with running_server() as server:
        server.call("PUT", POOL, {"num_blocks": 2, "block_size": 4})
        ask = {"lease_id": make_lease(server), "num_blocks": 1, "wait_ms": 30_000}
        server.call("POST", f"{POOL}/blocks/allocate", ask)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(server.call, "POST", f"{POOL}/blocks/allocate", ask)
            wait_for(lambda: num_waiting(server) == 1)
            assert server.stop() == 0
            status, reply = waiting.result()
    assert (status, reply["code"]) == (503, "not_ready")


def test_what_waiters_were_given_survives_a_restart(tmp_path: Any) -> None:
    with running_server("--data-dir", str(tmp_path)) as server:
        server.call("PUT", POOL, {"num_blocks": 3, "block_size": 4})
        lease = make_lease(server)
        server.call("POST", f"{POOL}/blocks/allocate", {"lease_id": lease, "num_blocks": 2})
        with ThreadPoolExecutor(1) as threads:
            ask = {"lease_id": lease, "sequence_id": "s", "num_tokens": 4, "wait_ms": 30_000}
            waiting = threads.submit(server.call, "POST", f"{POOL}/allocate", ask)
            wait_for(lambda: num_waiting(server) == 1)
            give_back(server, lease, 2)
            assert waiting.result()[0] == 200
    with running_server("--data-dir", str(tmp_path)) as server:
        assert server.call("GET", f"{POOL}/sequences/s")[1]["block_ids"] == [[2]]
        assert server.call("GET", f"{POOL}/audit")[1]["ok"]


def test_calls_that_wait_come_to_no_more_sequences_than_a_tenant_may_have(
    later: Callable[..., "Future[Any]"],
) -> None:
    with running_server("--max-sequences-per-tenant", "2") as server:
        assert server.call("PUT", POOL, {"num_blocks": 11, "block_size": 4})[0] == 201
        lease = make_lease(server)
        ask = {"lease_id": lease, "num_tokens": 4}
        assert server.call("POST", f"{POOL}/blocks/allocate", {"lease_id": lease, "num_blocks": 10})[0] == 200
        waiting = [
            later(server.call, "POST", f"{POOL}/allocate", {**ask, "sequence_id": name, "wait_ms": 20_000})
            for name in "abc"
        ]
        wait_for(lambda: num_waiting(server) == 3)
        give_back(server, lease, *range(1, 11))
        replies = [each.result() for each in waiting]
        assert sorted(status for status, _ in replies) == [200, 200, 429]
        assert [reply["limit"] for status, reply in replies if status == 429] == ["max_sequences_per_tenant"]
