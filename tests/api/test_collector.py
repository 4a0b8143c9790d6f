"""A server leaves no cycles behind that live longer than a call: what is frozen is not lost."""

import gc
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blockyard.server.collector import COLLECT_AFTER, keep, young_collections
from server_process import READY, environment

NUM_TIMES = 50


class Garbage:
    """A server that tells what garbage it has, and a connection to it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = process.stdout
        url = self._lines.readline().removeprefix(READY).strip()
        self.port = int(url.rsplit(":", 1)[1])
        self._connection = self.connect()
        assert self.call("PUT", "/v1/pools/p", {"num_blocks": 1000, "block_size": 16})[0] == 201
        self.lease: str = self.call("POST", "/v1/pools/p/leases", {"holder": "test", "ttl_ms": 600_000})[1][
            "lease_id"
        ]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def call(
        self, method: str, path: str, body: Any = None, connection: http.client.HTTPConnection | None = None
    ) -> tuple[int, Any]:
        used = connection or self._connection
        raw = None if body is None else json.dumps(body)
        used.request(method, path, raw, {"Content-Type": "application/json"})
        reply = used.getresponse()
        return reply.status, json.loads(reply.read())

    def hang_up(self) -> None:
        self._connection.close()

    def found(self) -> Any:
        """What a full collection finds now: the names of types, and how many of each."""
        time.sleep(0.3)  # whoever hung up has gone by then
        self._process.send_signal(signal.SIGUSR1)
        return json.loads(self._lines.readline().replace("'", '"'))


@pytest.fixture(scope="module", params=["volatile", "journalled"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garbage]:
    data_dir = str(tmp_path_factory.mktemp("data"))
    options = ["--volatile"] if request.param == "volatile" else ["--data-dir", data_dir]
    program = str(Path(__file__).with_name("garbage_process.py"))
    with subprocess.Popen(
        [sys.executable, program, "serve", "--port", "0", "--log-level", "error", *options],
        env=environment({}),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            garbage = Garbage(process)
            garbage.found()
            yield garbage
            garbage.hang_up()
        finally:
            process.terminate()
            assert process.wait(30) == 0


def allocate_and_free(server: Garbage, connection: http.client.HTTPConnection | None = None) -> None:
    body = {"lease_id": server.lease, "sequence_id": "s", "num_tokens": 40}
    assert server.call("POST", "/v1/pools/p/allocate", body, connection)[0] == 200
    body = {"lease_id": server.lease, "sequence_ids": ["s"]}
    assert server.call("POST", "/v1/pools/p/free", body, connection)[0] == 200


def test_calls_leave_no_cycles(server: Garbage) -> None:
    for _ in range(NUM_TIMES):
        allocate_and_free(server)
        assert server.call("GET", "/v1/pools/p/stats")[0] == 200
        assert server.call("POST", f"/v1/pools/p/leases/{server.lease}/renew")[0] == 200
    assert server.found() == {}


def test_refusals_leave_no_cycles(server: Garbage) -> None:
    for _ in range(NUM_TIMES):
        assert server.call("POST", "/v1/pools/p/free", {"lease_id": "no", "sequence_ids": []})[0] == 410
        assert server.call("POST", "/v1/pools/p/free", {"typo": 1})[0] == 422
        assert server.call("GET", "/v1/pools/nowhere/stats")[0] == 404
        assert server.call("GET", "/nowhere")[0] == 404
    assert server.found() == {}


def test_connections_leave_no_cycles(server: Garbage) -> None:
    for _ in range(NUM_TIMES):
        connection = server.connect()
        allocate_and_free(server, connection)
        assert server.call("GET", "/v1/pools/p/stats", connection=connection)[0] == 200
        connection.close()
    assert server.found() == {}


def test_callers_that_hang_up_leave_no_cycles(server: Garbage) -> None:
    for head in (
        b"POST /v1/pools/p/free HTTP/1.1\r\nContent-Length: 100\r\n\r\n{",
        b"GET /v1/watch HTTP/1.1\r\n\r\n",
    ):
        for _ in range(NUM_TIMES):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as caller:
                caller.sendall(head)
                if head.startswith(b"GET"):
                    assert caller.recv(100).startswith(b"HTTP/1.1 200")
    time.sleep(1)  # a stream notices at its next message
    assert server.found() == {}


def test_callers_that_hang_up_with_requests_waiting_leave_no_cycles(server: Garbage) -> None:
    request = b"GET /v1/pools HTTP/1.1\r\nHost: test\r\n\r\n"
    for _ in range(NUM_TIMES):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as caller:
            caller.sendall(request * 5)
    assert server.found() == {}


def test_metrics_leave_no_cycles(server: Garbage) -> None:
    connection = server.connect()
    for _ in range(10):
        connection.request("GET", "/metrics")
        assert connection.getresponse().read()
    connection.close()
    assert server.found() == {}


def test_what_survives_a_collection_is_never_looked_at_again() -> None:
    before = gc.get_freeze_count()
    with young_collections():
        kept = [[] for _ in range(10 * COLLECT_AFTER)]  # type: ignore[var-annotated]
        assert gc.get_freeze_count() > before + 9 * COLLECT_AFTER
        assert sum(gc.get_count()) <= COLLECT_AFTER + 100
    assert gc.get_freeze_count() == 0
    assert len(kept) == 10 * COLLECT_AFTER


def test_what_is_to_be_kept_is_not_looked_at_even_once() -> None:
    with young_collections():
        kept: list[list[int]] = [[]]
        assert any(each is kept for each in gc.get_objects())
        keep()
        assert not any(each is kept for each in gc.get_objects())


def test_nothing_is_frozen_where_nobody_asked_for_young_collections() -> None:
    before = gc.get_freeze_count()
    keep()
    assert gc.get_freeze_count() == before
