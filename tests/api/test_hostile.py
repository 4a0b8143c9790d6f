"""A real server under callers that mean no good, or die: it goes on serving, and the audit stays clean."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from server_process import ServerProcess, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as process:
        yield process


@pytest.fixture
def pool(server: ServerProcess) -> Iterator[str]:
    """A pool of its own for each test; its audit must be clean at the end."""
    path = f"/v1/pools/{uuid.uuid4().hex}"
    assert server.call("PUT", path, {"num_blocks": 1000, "block_size": 16})[0] == 201
    yield path
    status, audit = server.call("GET", f"{path}/audit")
    assert status == 200
    assert audit["ok"], audit["problems"]
    assert audit["num_free_blocks"] + audit["num_held_blocks"] + audit["num_null_blocks"] == 1000


def open_lease(server: ServerProcess, pool: str, ttl_ms: int = 60_000) -> str:
    status, lease = server.call("POST", f"{pool}/leases", {"holder": "test", "ttl_ms": ttl_ms})
    assert status == 201
    return str(lease["lease_id"])


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def read_answer(caller: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    with http.client.HTTPResponse(caller) as answer:
        answer.begin()
        return answer.status, answer.read()


def request_head(path: str, length: int) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: test",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def held_blocks(server: ServerProcess, pool: str) -> int:
    return int(server.call("GET", f"{pool}/stats")[1]["num_held_blocks"])


def test_a_body_of_100_megabytes_is_answered_413(server: ServerProcess, pool: str) -> None:
    with connect(server) as caller:
        caller.sendall(request_head(f"{pool}/allocate", 100_000_000))
        for _ in range(100):
            caller.sendall(b"x" * 1_000_000)
        status, answer = read_answer(caller)
    assert (status, json.loads(answer)["code"]) == (413, "body_too_large")


def test_a_body_of_unknown_length_is_bounded_as_well(server: ServerProcess, pool: str) -> None:
    with connect(server) as caller:
        caller.sendall(
            f"POST {pool}/allocate HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(40):
            caller.sendall(b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n")
        caller.sendall(b"0\r\n\r\n")
        assert read_answer(caller)[0] == 413


def test_a_caller_that_asks_before_it_sends_too_much_is_told_at_once(
    server: ServerProcess, pool: str
) -> None:
    with connect(server) as caller:
        head = request_head(f"{pool}/allocate", 100_000_000).replace(
            b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"
        )
        caller.sendall(head)
        assert read_answer(caller)[0] == 413


def test_a_caller_that_hangs_up_inside_its_body_allocates_nothing(server: ServerProcess, pool: str) -> None:
    body = json.dumps({"lease_id": open_lease(server, pool), "num_blocks": 5}).encode()
    for cut in range(0, len(body), 7):
        with connect(server) as caller:
            caller.sendall(request_head(f"{pool}/blocks/allocate", len(body)) + body[:cut])
    assert server.call("GET", "/healthz")[0] == 200
    assert held_blocks(server, pool) == 0


def test_a_caller_that_hangs_up_before_its_answer_may_ask_again(server: ServerProcess, pool: str) -> None:
    body = json.dumps({"lease_id": open_lease(server, pool), "num_blocks": 5}).encode()
    head = request_head(f"{pool}/blocks/allocate", len(body)).replace(
        b"\r\n\r\n", b"\r\nIdempotency-Key: k\r\n\r\n"
    )
    with connect(server) as caller:
        caller.sendall(head + body)
    with connect(server) as caller:
        caller.sendall(head + body)
        assert json.loads(read_answer(caller)[1])["block_ids"] == [1, 2, 3, 4, 5]
    assert held_blocks(server, pool) == 5


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/pools HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01",
    ],
)
def test_what_is_no_http_hurts_nobody(server: ServerProcess, pool: str, garbage: bytes) -> None:
    with connect(server) as caller:
        caller.sendall(garbage)
        caller.shutdown(socket.SHUT_WR)
        caller.recv(65536)
    assert server.call("GET", f"{pool}/stats")[0] == 200


def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:
    with running_server("--body-timeout-s", "1") as server, connect(server) as caller:
        caller.sendall(request_head("/v1/pools/pool/allocate", 100) + b"{")
        status, answer = read_answer(caller)
        assert (status, json.loads(answer)["code"]) == (408, "request_timeout")
        assert server.call("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("endless", [b"GET /" + b"x" * 300_000, b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000])
def test_a_head_without_end_is_cut_off(server: ServerProcess, endless: bytes) -> None:
    with connect(server) as caller:
        caller.sendall(endless)
        assert caller.recv(65536).startswith(b"HTTP/1.1 431")


def test_many_callers_at_once_never_get_one_block_twice(server: ServerProcess, pool: str) -> None:
    def churn(_: int) -> list[int]:
        lease = open_lease(server, pool)
        mine: list[int] = []
        for turn in range(20):
            status, reply = server.call(
                "POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 3}
            )
            assert status == 200
            mine += reply["block_ids"]
            if turn % 2:
                returned, mine = mine[:2], mine[2:]
                free = {"lease_id": lease, "block_ids": returned}
                assert server.call("POST", f"{pool}/blocks/free", free)[0] == 200
        return mine

    with ThreadPoolExecutor(8) as callers:
        held = [block for mine in callers.map(churn, range(8)) for block in mine]
    assert len(held) == len(set(held)) == held_blocks(server, pool)


def test_two_frees_of_one_block_at_once_succeed_once(server: ServerProcess, pool: str) -> None:
    lease = open_lease(server, pool)
    for _ in range(20):
        block_ids = server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 2})[1][
            "block_ids"
        ]
        free = {"lease_id": lease, "block_ids": block_ids}
        with ThreadPoolExecutor(4) as callers:
            statuses = sorted(
                callers.map(lambda _: server.call("POST", f"{pool}/blocks/free", free)[0], range(4))  # noqa: B023
            )
        assert statuses == [200, 409, 409, 409]


SCHEDULER = textwrap.dedent(
    """
    import http.client, json, sys, time
    port, pool = int(sys.argv[1]), sys.argv[2]
    connection = http.client.HTTPConnection("127.0.0.1", port)
    def call(path, body):
        connection.request("POST", pool + path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    lease = call("/leases", {"holder": "doomed", "ttl_ms": 1000})["lease_id"]
    for number in range(10):
        call("/allocate", {"lease_id": lease, "sequence_id": f"s{number}", "num_tokens": 100})
    print(lease, flush=True)
    while True:
        call(f"/leases/{lease}/renew", {})
        time.sleep(0.1)
    """
)


def test_the_blocks_of_a_killed_scheduler_are_free_within_its_leases_time(
    server: ServerProcess, pool: str
) -> None:
    scheduler = subprocess.Popen(
        [sys.executable, "-c", SCHEDULER, str(server.port), pool], stdout=subprocess.PIPE, text=True
    )
    assert scheduler.stdout is not None
    lease = scheduler.stdout.readline().strip()
    scheduler.stdout.close()
    time.sleep(1.2)  # longer than the lease: it lives because it is renewed
    assert held_blocks(server, pool) == 70
    scheduler.send_signal(signal.SIGKILL)
    scheduler.wait()
    killed = time.monotonic()
    while held_blocks(server, pool):
        assert time.monotonic() - killed < 1.5, "the lease lasts a second"
        time.sleep(0.02)
    status, late = server.call(
        "POST", f"{pool}/allocate", {"lease_id": lease, "sequence_id": "s", "num_tokens": 1}
    )
    assert (status, late["code"]) == (410, "lease_expired")


def test_a_server_that_was_suspended_does_not_take_its_callers_for_dead() -> None:
    with running_server() as server:
        server.call("PUT", "/v1/pools/pool", {"num_blocks": 100, "block_size": 16})
        lease = open_lease(server, "/v1/pools/pool", ttl_ms=600)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        server.process.send_signal(signal.SIGCONT)
        assert server.call("POST", f"/v1/pools/pool/leases/{lease}/renew", {})[0] == 200
