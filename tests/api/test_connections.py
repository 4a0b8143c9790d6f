"""Limits on connections and on time, over real sockets: who is late, too large or one too many is told so."""

import http.client
import json
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from server_process import COMMAND, READY, ServerProcess, first_line, require, running_server
from waiting import wait_for

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"
LIST = b"GET /v1/pools HTTP/1.1\r\nHost: test\r\n\r\n"
POOL = "/v1/pools/pool"
JSON = "Content-Type: application/json"


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


@contextmanager
def connected(server: ServerProcess) -> Iterator[socket.socket]:
    with connect(server) as caller:
        yield caller


def read_answer(caller: socket.socket) -> tuple[int, dict[str, Any], http.client.HTTPMessage]:
    """Status, document and headers of the next answer."""
    with http.client.HTTPResponse(caller) as answer:
        answer.begin()
        return answer.status, json.loads(answer.read()), answer.headers


def post(path: str, body: Any, *headers: str) -> bytes:
    raw = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def is_closed(caller: socket.socket) -> bool:
    """Whether the server has ended the connection: waits for it."""
    with suppress(ConnectionResetError):
        while caller.recv(65_536):
            pass
    return True


def assert_told(caller: socket.socket, status: int, code: str, **figures: int | str) -> None:
    """The next answer is a problem with these figures, and the last on its connection."""
    told, problem, headers = read_answer(caller)
    assert (told, problem["code"]) == (status, code)
    assert {name: problem[name] for name in figures} == figures
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"].lower() == "close"
    assert is_closed(caller)


def num_open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


# Heads


@pytest.mark.parametrize("num_packets", [1, 50])
def test_a_head_over_the_limit_is_told_so(num_packets: int) -> None:
    head = LIST[:-2] + b"".join(b"X-%d: %s\r\n" % (number, b"x" * 100) for number in range(50)) + b"\r\n"
    size = len(head) // num_packets + 1
    with running_server("--volatile", "--max-head-bytes", "2048") as server:
        with connected(server) as caller:
            with suppress(ConnectionError):
                for start in range(0, len(head), size):
                    caller.sendall(head[start : start + size])
                    time.sleep(0.002)
            assert_told(caller, 431, "head_too_large", max_head_bytes=2048)
        with connected(server) as caller:
            caller.sendall(LIST[:-2] + b"X: %s\r\n\r\n" % (b"x" * 1_900))
            assert read_answer(caller)[0] == 200


def test_a_head_that_is_too_large_is_no_answer_to_the_request_before_it() -> None:
    with running_server("--volatile", "--max-head-bytes", "2048") as server, connected(server) as caller:
        many = {"algorithm": "blake2b", "block_size": 16, "token_ids": [0] * 300_000}
        caller.sendall(post("/v1/hash", many, JSON) + b"GET /" + b"x" * 100_000)
        with suppress(ConnectionError, http.client.BadStatusLine, http.client.IncompleteRead):
            assert read_answer(caller)[0] == 200
        assert is_closed(caller)


def test_a_head_that_does_not_arrive_in_time_is_told_so_however_slowly_it_comes() -> None:
    with running_server("--volatile", "--head-timeout-s", "1") as server:
        with connected(server) as silent, connected(server) as slow, connected(server) as blank:
            slow.sendall(LIST[:10])
            slow.settimeout(0.1)
            for byte in LIST[10:-1]:
                with suppress(ConnectionError):
                    slow.sendall(bytes([byte]))
                with suppress(ConnectionError):
                    blank.sendall(b"\r\n")
                time.sleep(0.05)
            slow.settimeout(30)
            assert_told(slow, 408, "request_timeout", limit="head_timeout_s", max=1)
            assert is_closed(silent)
            assert is_closed(blank)
        assert server.call("GET", "/healthz")[0] == 200


def test_a_connection_between_requests_may_be_idle_for_longer_than_a_head_may_take() -> None:
    with running_server("--volatile", "--head-timeout-s", "1") as server, connected(server) as caller:
        caller.sendall(HEALTH)
        assert read_answer(caller)[0] == 200
        time.sleep(2)
        caller.sendall(HEALTH)
        assert read_answer(caller)[0] == 200
        caller.sendall(HEALTH[:5])
        assert_told(caller, 408, "request_timeout", limit="head_timeout_s", max=1)


def test_an_idle_connection_is_ended_and_leaves_no_file_open() -> None:
    with running_server("--volatile", "--idle-timeout-s", "1") as server, ExitStack() as stack:
        before = num_open_files(server)
        for _ in range(20):
            caller = stack.enter_context(connected(server))
            caller.sendall(HEALTH)
            assert read_answer(caller)[0] == 200
        assert num_open_files(server) >= before + 20
        wait_for(lambda: num_open_files(server) <= before)


def test_a_caller_that_never_reads_its_answers_is_ended() -> None:
    options = ("--volatile", "--idle-timeout-s", "1", "--request-timeout-s", "1")
    with running_server(*options) as server:
        before = num_open_files(server)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(HEALTH)
            assert read_answer(deaf)[0] == 200
            assert num_open_files(server) == before + 1
            deaf.settimeout(0.5)
            with suppress(OSError):
                for _ in range(100):
                    deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: test\r\n\r\n" * 100)
            wait_for(lambda: num_open_files(server) == before)
        assert server.call("GET", "/healthz")[0] == 200


# Bodies and work


def test_a_body_that_does_not_arrive_in_time_is_told_so() -> None:
    with running_server("--volatile", "--body-timeout-s", "1") as server, connected(server) as caller:
        caller.sendall(post(f"{POOL}/step", {"lease_id": "x"})[:-2])
        assert_told(caller, 408, "request_timeout", limit="body_timeout_s", max=1)


def test_what_takes_too_long_is_told_so_and_others_do_not_wait_for_it() -> None:
    slow = {"algorithm": "sha256_cbor", "block_size": 1, "token_ids": [0] * 1_000_000}
    with running_server("--volatile", "--request-timeout-s", "1") as server, connected(server) as caller:
        caller.sendall(post("/v1/hash", slow, JSON))
        assert_told(caller, 408, "request_timeout", limit="request_timeout_s", max=1)
        assert server.call("GET", "/healthz")[0] == 200


def test_a_call_whose_journal_hangs_is_told_so_by_either_path_and_its_repeat_gets_the_reply(
    tmp_path: Path,
) -> None:
    options = ("--data-dir", str(tmp_path), "--sync", "full", "--request-timeout-s", "1")
    with running_server(*options) as server:
        server.call("PUT", POOL, {"num_blocks": 100, "block_size": 16})
        lease = server.call("POST", f"{POOL}/leases", {"holder": "me", "ttl_ms": 60_000})[1]["lease_id"]
        hot = post(
            f"{POOL}/allocate",
            {"lease_id": lease, "sequence_id": "s", "num_tokens": 40},
            "Idempotency-Key: hot",
        )
        cold = post(f"{POOL}/blocks/allocate", {"lease_id": lease, "num_blocks": 2}, "Idempotency-Key: cold")
        with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # as a backup that hangs
            with connected(server) as one, connected(server) as another:
                one.sendall(hot)
                another.sendall(cold)
                for caller in (one, another):
                    status, problem, _ = read_answer(caller)
                    assert (status, problem["code"]) == (408, "request_timeout")
                    assert (problem["limit"], problem["max"]) == ("request_timeout_s", 1)
            other.execute("ROLLBACK")
        for request, block_ids in ((hot, [[1, 2, 3]]), (cold, [4, 5])):
            with connected(server) as caller:
                caller.sendall(request)
                status, reply, _ = read_answer(caller)
                assert (status, reply["block_ids"]) == (200, block_ids)
        audit = server.call("GET", f"{POOL}/audit")[1]
        assert (audit["ok"], audit["num_held_blocks"]) == (True, 5)


def test_a_subscriber_that_reads_nothing_gives_its_place_to_another() -> None:
    options = ("--volatile", "--request-timeout-s", "1", "--max-subscribers", "1")
    with running_server(*options) as server:
        server.call("PUT", POOL, {"num_blocks": 200_001, "block_size": 1, "events": True})
        lease = server.call("POST", f"{POOL}/leases", {"holder": "me", "ttl_ms": 60_000})[1]["lease_id"]
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(f"GET {POOL}/events HTTP/1.1\r\nHost: b\r\n\r\n".encode())
            wait_for(lambda: is_full(server))
            for prompt in range(30):
                held = {"lease_id": lease, "sequence_id": f"s{prompt}"}
                tokens = {"num_tokens": 6_400, "token_ids": [prompt] * 6_400}
                assert server.call("POST", f"{POOL}/allocate", {**held, **tokens})[0] == 200
                assert server.call("POST", f"{POOL}/commit", {**held, "num_computed_tokens": 6_400})[0] == 200
            wait_for(lambda: not is_full(server))


def is_full(server: ServerProcess) -> bool:
    """Whether one more subscriber is refused."""
    with connected(server) as caller:
        caller.sendall(f"GET {POOL}/events HTTP/1.1\r\nHost: b\r\n\r\n".encode())
        return b" 503 " in caller.recv(64)


def test_a_subscriber_that_reads_is_served_for_longer_than_a_request_may_take() -> None:
    with running_server("--volatile", "--request-timeout-s", "1") as server, connected(server) as caller:
        server.call("PUT", POOL, {"num_blocks": 100, "block_size": 1})
        caller.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: b\r\n\r\n")
        time.sleep(2.5)
        caller.settimeout(0.2)
        with suppress(TimeoutError):
            while caller.recv(65_536):
                pass
        caller.settimeout(30)
        server.call("DELETE", POOL)
        assert caller.recv(65_536)


# Connections


def test_one_connection_too_many_is_told_when_to_come_back_and_fits_once_another_is_gone() -> None:
    with running_server("--volatile", "--max-connections", "3") as server, ExitStack() as stack:
        callers = [stack.enter_context(connected(server)) for _ in range(3)]
        for caller in callers:
            caller.sendall(HEALTH)
            assert read_answer(caller)[0] == 200
        with connected(server) as further:
            further.sendall(LIST)
            assert_told(further, 503, "overloaded", retry_after_ms=1_000)
        with connected(server) as probe:
            probe.sendall(HEALTH)
            status, _, headers = read_answer(probe)
            assert (status, headers["connection"]) == (200, "close")
        callers[0].sendall(LIST)
        assert read_answer(callers[0])[0] == 200
        callers[0].close()
        wait_for(lambda: server.call("GET", "/v1/pools")[0] == 200)


def test_a_flood_of_connections_ends_in_no_more_than_are_heard_out() -> None:
    with running_server("--volatile", "--max-connections", "3") as server, ExitStack() as stack:
        before = num_open_files(server)
        callers = [stack.enter_context(connected(server)) for _ in range(200)]
        assert_told(callers[-1], 503, "overloaded", retry_after_ms=1_000)
        wait_for(lambda: num_open_files(server) <= before + 3 + 64)
        callers[0].sendall(LIST)
        assert read_answer(callers[0])[0] == 200


def test_connections_are_no_more_than_files_allow() -> None:
    few_files = ["sh", "-c", 'ulimit -n 300; exec "$0" "$@"', *COMMAND, "serve", "--port", "0", "--volatile"]
    with subprocess.Popen(few_files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert first_line(require(process.stdout)).startswith(READY)
        process.terminate()
        assert '"max_connections": 44' in require(process.stderr).read()
