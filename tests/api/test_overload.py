"""A server with more to do than it can: some calls are done, the rest are told to come back, none is lost."""

import http.client
import json
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from blockyard.client import Client, RetryPolicy
from server_process import ServerProcess, running_server

POOL = "/v1/pools/pool"
NUM_CALLERS = 40
NUM_CLIENTS = 16
BUSY = ("--volatile", "--max-turn-ms", "1")


@contextmanager
def stopped(server: ServerProcess) -> Iterator[None]:
    """What is sent meanwhile is found together, in one turn of the server's loop."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def make_pool(server: ServerProcess) -> str:
    """A pool of many blocks, and a lease of it."""
    assert server.call("PUT", POOL, {"num_blocks": 2_000_001, "block_size": 1})[0] == 201
    return str(server.call("POST", f"{POOL}/leases", {"holder": "me", "ttl_ms": 60_000})[1]["lease_id"])


def post(path: str, body: Any) -> bytes:
    raw = json.dumps(body).encode()
    return f"POST {POOL}{path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


def read_answer(caller: socket.socket) -> tuple[int, Any]:
    with http.client.HTTPResponse(caller) as answer:
        answer.begin()
        return answer.status, json.loads(answer.read())


def answers_of_one_turn(server: ServerProcess, *requests: bytes) -> list[tuple[int, Any]]:
    """Of requests by a connection each, all of which the server finds at once."""
    with ExitStack() as stack:
        callers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in requests
        ]
        for caller in callers:
            caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
            assert read_answer(caller)[0] == 200
        with stopped(server):
            for caller, request in zip(callers, requests, strict=True):
                caller.sendall(request)
        return [read_answer(caller) for caller in callers]


@pytest.mark.parametrize("call", ["/allocate", "/blocks/allocate"])
def test_calls_too_late_in_their_turn_are_refused_by_either_path_and_have_done_nothing(call: str) -> None:
    with running_server(*BUSY) as server:
        lease = make_pool(server)
        body = {"num_tokens": 40_000} if call == "/allocate" else {"num_blocks": 40_000}
        named = [
            {"sequence_id": f"s{number}"} if call == "/allocate" else {} for number in range(NUM_CALLERS)
        ]
        answers = answers_of_one_turn(
            server, *(post(call, {"lease_id": lease, **body, **each}) for each in named)
        )
        done = [reply for status, reply in answers if status == 200]
        refused = [reply for status, reply in answers if status == 503]
        assert len(done) + len(refused) == NUM_CALLERS
        assert done
        assert refused
        assert {reply["code"] for reply in refused} == {"overloaded"}
        assert all(0 < reply["retry_after_ms"] <= 5_000 for reply in refused)
        audit = server.call("GET", f"{POOL}/audit")[1]
        assert (audit["ok"], audit["num_held_blocks"]) == (True, 40_000 * len(done))


def test_probes_and_renewals_are_answered_in_the_latest_turn() -> None:
    with running_server(*BUSY) as server:
        lease = make_pool(server)
        heavy = [
            post("/allocate", {"lease_id": lease, "sequence_id": f"s{number}", "num_tokens": 40_000})
            for number in range(NUM_CALLERS)
        ]
        renew = post(f"/leases/{lease}/renew", {})
        answers = answers_of_one_turn(
            server, *heavy, renew, b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n", heavy[0]
        )
        assert 503 in [status for status, _ in answers[:NUM_CALLERS]]
        assert [status for status, _ in answers[NUM_CALLERS:-1]] == [200, 200]


def test_clients_come_back_when_told_and_each_of_their_calls_is_done_once() -> None:
    patient = RetryPolicy(max_attempts=100, max_total_s=120.0)
    are_ready = threading.Barrier(NUM_CLIENTS + 1)

    def hold(number: int) -> int:
        with Client(server.url, retries=patient) as client:
            lease = client.pool("pool").lease(f"caller {number}", ttl_ms=600_000, renew=False)
            are_ready.wait(30)
            return len(lease.allocate_blocks(20_000).block_ids)

    with running_server(*BUSY) as server, ThreadPoolExecutor(NUM_CLIENTS) as callers:
        make_pool(server)
        held = [callers.submit(hold, number) for number in range(NUM_CLIENTS)]
        are_ready.wait(30)
        with stopped(server):
            time.sleep(0.5)  # they call meanwhile
        assert sum(each.result() for each in held) == 20_000 * NUM_CLIENTS
        audit = server.call("GET", f"{POOL}/audit")[1]
        assert (audit["ok"], audit["num_held_blocks"]) == (True, 20_000 * NUM_CLIENTS)
        assert num_refused(server) > 0


def num_refused(server: ServerProcess) -> float:
    """Requests that were told to come back, as the server counts them."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as reply:
        found = re.search(r'count\{outcome="unavailable",route="none"\} (\S+)', reply.read().decode())
    return float(found.group(1)) if found else 0.0
