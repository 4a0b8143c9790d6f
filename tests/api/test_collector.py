"""A server leaves no cycles behind that live longer than a call: what is frozen is not lost."""

import gc
import http.client
import socket
import time
from collections.abc import Iterator

import pytest

from api.garbage import Garbage, garbage_server
from blockyard.server.collector import COLLECT_AFTER, keep, young_collections

NUM_TIMES = 50


@pytest.fixture(scope="module", params=["volatile", "journalled"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garbage]:
    data_dir = str(tmp_path_factory.mktemp("data"))
    options = ["--volatile"] if request.param == "volatile" else ["--data-dir", data_dir]
    with garbage_server(*options) as garbage:
        yield garbage


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
