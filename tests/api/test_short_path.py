"""Hot calls by the short path: however their bytes arrive, they are answered as by the long one, in order."""

import http.client
import json
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from blockyard.server.app import create_app
from blockyard.server.http_protocol import HttpProtocol
from blockyard.server.settings import Settings
from server_process import ServerProcess, running_server


@pytest.fixture(scope="module", params=["volatile", "journalled", "synced"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    data_dir = tmp_path_factory.mktemp("data")
    options: dict[str, list[str]] = {
        "volatile": [],
        "journalled": ["--data-dir", str(data_dir)],
        "synced": ["--data-dir", str(data_dir), "--sync", "full"],
    }
    with running_server(*options[request.param]) as process:
        yield process


class Caller:
    """A pool and a lease of it, and a socket to send bytes over."""

    def __init__(self, server: ServerProcess, caller: socket.socket) -> None:
        self.server = server
        self.socket = caller
        self.pool = f"/v1/pools/{uuid.uuid4().hex}"
        assert server.call("PUT", self.pool, {"num_blocks": 1000, "block_size": 16})[0] == 201
        self.lease = server.call("POST", f"{self.pool}/leases", {"holder": "test", "ttl_ms": 60_000})[1][
            "lease_id"
        ]

    def request(self, call: str, body: Any, *headers: str, version: str = "1.1") -> bytes:
        raw = json.dumps(body).encode()
        lines = [
            f"POST {self.pool}/{call} HTTP/{version}",
            "Host: test",
            f"Content-Length: {len(raw)}",
            *headers,
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw

    def allocate(self, name: str, *headers: str, version: str = "1.1") -> bytes:
        body = {"lease_id": self.lease, "sequence_id": name, "num_tokens": 40}
        return self.request("allocate", body, *headers, version=version)

    def free(self, *names: str) -> bytes:
        return self.request("free", {"lease_id": self.lease, "sequence_ids": names})

    def read(self) -> tuple[int, Any]:
        """Status and document of the next answer."""
        answer = http.client.HTTPResponse(self.socket)
        answer.begin()
        return answer.status, json.loads(answer.read())


@pytest.fixture
def caller(server: ServerProcess) -> Iterator[Caller]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each = Caller(server, connection)
        yield each
    audit = server.call("GET", f"{each.pool}/audit")[1]
    assert audit["ok"], audit["problems"]


def answers_in_order(caller: Caller, number: int) -> list[tuple[int, Any]]:
    """Of requests that were sent without waiting: http.client would read ahead of the one it reads."""
    data = b""
    found: list[tuple[int, Any]] = []
    while len(found) < number:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ),
            None,
        )
        if length is None or len(rest) < length:
            part = caller.socket.recv(65536)
            assert part, "the server hung up"
            data += part
            continue
        found.append((int(head.split(b" ")[1]), json.loads(rest[:length])))
        data = rest[length:]
    return found


def test_a_call_in_two_packets_is_answered_wherever_it_was_cut(caller: Caller) -> None:
    whole = caller.allocate("cut")
    for cut in range(1, len(whole), 5):
        caller.socket.sendall(whole[:cut])
        time.sleep(0.002)
        caller.socket.sendall(whole[cut:])
        status, reply = caller.read()
        assert (status, len(reply["block_ids"][0])) == (200, 3)
        caller.socket.sendall(caller.free("cut"))
        assert caller.read()[1]["num_freed_blocks"] == 3


def test_a_call_that_comes_byte_by_byte_is_answered(caller: Caller) -> None:
    for byte in caller.allocate("bytes"):
        caller.socket.sendall(bytes([byte]))
    assert caller.read()[0] == 200


def test_calls_sent_without_waiting_are_answered_in_their_order(caller: Caller) -> None:
    packet = b"".join(
        (
            caller.allocate("one"),
            caller.allocate("two"),
            caller.free("one"),
            f"GET {caller.pool}/stats HTTP/1.1\r\nHost: test\r\n\r\n".encode(),
            caller.free("two", "three"),
            caller.allocate("one"),
        )
    )
    for cut in (len(packet), 150, 400):
        caller.socket.sendall(packet[:cut])
        time.sleep(0.01)
        caller.socket.sendall(packet[cut:])
        found = answers_in_order(caller, 6)
        assert [status for status, _ in found] == [200] * 6
        assert found[3][1]["num_held_blocks"] == 3
        assert found[4][1]["unknown"] == ["three"]
        assert found[5][1]["num_cached_tokens"] == 0
        caller.socket.sendall(caller.free("one"))
        assert answers_in_order(caller, 1)[0][1]["num_freed_blocks"] == 3


def test_a_chunked_body_is_read(caller: Caller) -> None:
    head, _, body = caller.allocate("chunks").partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    caller.socket.sendall(head + b"\r\n\r\n" + chunks)
    assert caller.read()[0] == 200


def test_a_caller_that_wants_to_close_is_told_and_closed(caller: Caller) -> None:
    caller.socket.sendall(caller.allocate("last", "Connection: close"))
    answer = http.client.HTTPResponse(caller.socket)
    answer.begin()
    assert (answer.status, answer.getheader("connection")) == (200, "close")
    answer.read()
    assert caller.socket.recv(1) == b""


def test_a_caller_of_http_1_0_is_answered_and_closed(caller: Caller) -> None:
    caller.socket.sendall(caller.allocate("old", version="1.0"))
    assert caller.read()[0] == 200
    assert caller.socket.recv(1) == b""


def test_a_caller_that_asks_before_it_sends_is_told_to_go_on(caller: Caller) -> None:
    head, _, body = caller.allocate("polite", "Expect: 100-continue").partition(b"\r\n\r\n")
    caller.socket.sendall(head + b"\r\n\r\n")
    assert caller.socket.recv(100).startswith(b"HTTP/1.1 100 ")
    caller.socket.sendall(body)
    assert caller.read()[0] == 200


def test_a_body_of_many_packets_is_read(caller: Caller) -> None:
    hashes = [f"{number:064x}" for number in range(20_000)]
    caller.socket.sendall(caller.request("lookup", {"num_tokens": 320_000, "block_hashes": hashes}))
    assert caller.read() == (200, {"epoch": 1, "num_cached_tokens": 0, "block_ids": [[]]})


def test_a_head_that_begins_behind_a_long_body_is_not_taken_for_a_long_head(caller: Caller) -> None:
    hashes = [f"{number:064x}" for number in range(4_000)]
    long = caller.request("lookup", {"num_tokens": 64_000, "block_hashes": hashes})
    short = caller.allocate("behind")
    caller.socket.sendall(long[:-150_000])
    time.sleep(0.1)
    caller.socket.sendall(long[-150_000:] + short[:20])
    time.sleep(0.1)
    caller.socket.sendall(short[20:])
    assert [status for status, _ in answers_in_order(caller, 2)] == [200, 200]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 422, "invalid_request"),
        ({"lease_id": "nobody's", "sequence_ids": []}, 410, "lease_expired"),
        ({"lease_id": "x", "sequence_ids": [], "typo": 1}, 422, "invalid_request"),
    ],
)
def test_refusals_are_problem_documents(caller: Caller, body: Any, status: int, code: str) -> None:
    caller.socket.sendall(caller.request("free", body))
    answer = http.client.HTTPResponse(caller.socket)
    answer.begin()
    assert answer.getheader("content-type") == "application/problem+json"
    assert (answer.status, json.loads(answer.read())["code"]) == (status, code)


def test_what_only_looks_like_a_hot_call_is_none(caller: Caller) -> None:
    body = {"lease_id": caller.lease, "sequence_ids": []}
    for call, status in (("free?query=1", 422), ("fre%65", 200), ("x/free", 404)):
        caller.socket.sendall(caller.request(call, body))
        answer = http.client.HTTPResponse(caller.socket)
        answer.begin()
        answer.read()
        assert answer.status == status, call
    elsewhere = caller.request("free", body).replace(caller.pool.encode(), b"/v1/pools/nowhere", 1)
    caller.socket.sendall(elsewhere)
    assert caller.read()[1]["code"] == "pool_not_found"


def test_a_repeat_under_one_key_is_one_call_by_either_path(caller: Caller) -> None:
    whole = caller.allocate("key", "Idempotency-Key: k")
    caller.socket.sendall(whole)
    first = caller.read()
    caller.socket.sendall(whole[:-5])
    time.sleep(0.01)
    caller.socket.sendall(whole[-5:])
    assert caller.read() == first


def test_callers_that_hang_up_at_once_leave_the_pool_in_order(caller: Caller) -> None:
    for number in range(100):
        with socket.create_connection(("127.0.0.1", caller.server.port)) as hasty:
            hasty.sendall(caller.allocate(f"hasty-{number}"))
    caller.socket.sendall(caller.free(*(f"hasty-{number}" for number in range(100))))
    status, reply = caller.read()
    assert (status, reply["num_free_blocks"]) == (200, 999)


def test_a_caller_that_does_not_read_holds_up_nobody_and_misses_nothing(caller: Caller) -> None:
    names = [f"{number:0250}" for number in range(1000)]
    number = 100
    sending = threading.Thread(
        target=caller.socket.sendall, args=(caller.free(*names) * number,), daemon=True
    )
    sending.start()
    time.sleep(0.3)
    assert caller.server.call("GET", f"{caller.pool}/stats")[0] == 200
    found = answers_in_order(caller, number)
    assert all(status == 200 and reply["unknown"] == names for status, reply in found)
    sending.join(10)


def test_callers_that_send_without_end_and_read_nothing_are_read_no_further(caller: Caller) -> None:
    packet = caller.request("lookup", {"num_tokens": 3}) * 200
    caller.socket.settimeout(0.5)
    num_sent = 0
    with suppress(TimeoutError):
        while num_sent < 40_000_000:
            num_sent += caller.socket.send(packet)
    assert num_sent < 40_000_000
    assert caller.server.call("GET", f"{caller.pool}/stats")[0] == 200


def test_a_request_whose_caller_hangs_up_with_others_behind_it_is_no_mistake_of_ours(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with running_server("--log-level", "error") as server:
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", server.port)) as hasty:
                hasty.sendall(b"GET /v1/pools HTTP/1.1\r\nHost: test\r\n\r\n" * 5)
        assert server.call("GET", "/healthz")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    assert capfd.readouterr().err == ""


def test_what_stands_behind_a_chunked_body_is_bounded_and_no_header(caller: Caller) -> None:
    head, _, body = caller.allocate("trailers").partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked") + b"\r\n\r\n"
    chunk = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    caller.socket.sendall(head + chunk + b"Content-Type: application/msgpack\r\n\r\n")
    assert caller.read()[0] == 200
    caller.socket.sendall(head + chunk)
    with suppress(ConnectionError):
        for _ in range(200):
            caller.socket.sendall(b"X: " + b"x" * 10_000 + b"\r\n")
            time.sleep(0.001)
    with suppress(ConnectionError):
        assert caller.socket.recv(100).startswith(b"HTTP/1.1 431")
    assert caller.server.call("GET", f"{caller.pool}/stats")[0] == 200


def test_a_caller_that_sends_no_more_gets_its_answer(caller: Caller) -> None:
    caller.socket.sendall(caller.allocate("half"))
    caller.socket.shutdown(socket.SHUT_WR)
    assert caller.read()[0] == 200
    assert caller.socket.recv(1) == b""


def test_long_urls_are_answered_as_well(caller: Caller) -> None:
    body = {"lease_id": caller.lease, "sequence_ids": []}
    long = caller.request("free", body).replace(caller.pool.encode(), b"/v1/pools/" + b"x" * 30_000, 1)
    caller.socket.sendall(long)
    assert caller.read()[1]["code"] == "pool_not_found"


def test_of_a_column_with_many_faults_the_first_is_told_at_once(caller: Caller) -> None:
    extend = {"sequences": [1], "num_tokens": [0] * 100_000}
    caller.socket.sendall(caller.request("step", {"lease_id": caller.lease, "extend": extend}))
    status, problem = caller.read()
    assert (status, [error["field"] for error in problem["errors"]]) == (422, ["extend.num_tokens.0"])


def test_hot_calls_are_counted_by_their_route(caller: Caller) -> None:
    route = 'blockyard_request_duration_seconds_count{outcome="ok",route="/v1/pools/{pool}/allocate"}'

    def counted() -> float:
        connection = http.client.HTTPConnection("127.0.0.1", caller.server.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(route)), 0.0)

    before = counted()
    caller.socket.sendall(caller.allocate("counted"))
    caller.read()
    assert counted() == before + 1


def test_a_server_that_stops_answers_what_is_under_way(tmp_path: Path) -> None:
    with (
        running_server("--data-dir", str(tmp_path), "--sync", "full") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection,
        socket.create_connection(("127.0.0.1", server.port), timeout=30),
    ):
        caller = Caller(server, connection)
        caller.socket.sendall(caller.allocate("late"))
        server.process.send_signal(signal.SIGTERM)
        assert caller.read()[0] in (200, 503)
        assert server.process.wait(30) == 0


@contextmanager
def served_in_a_thread(idle_timeout_s: int) -> Iterator[int]:
    """The port of a server that ends idle connections after so long."""
    config = uvicorn.Config(
        create_app(Settings(idle_timeout_s=idle_timeout_s)),
        http=HttpProtocol,
        log_config=None,
        proxy_headers=False,
        ws="none",
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(30)


def test_a_connection_is_ended_once_it_was_idle_for_long_and_not_before() -> None:
    with (
        served_in_a_thread(idle_timeout_s=1) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
    ):
        for _ in range(4):
            time.sleep(0.5)
            connection.sendall(b"POST /v1/pools/p/free HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}")
            assert connection.recv(65536).startswith(b"HTTP/1.1 422")
        began_s = time.monotonic()
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        assert 0.9 < time.monotonic() - began_s < 10
