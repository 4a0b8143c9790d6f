"""Nodes that cannot be heard, or do not know yet that they were taken for dead: none answers for a pool."""

import http.client
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.nodes import JSON, TWO, Nodes, ask, follow, make_lease, make_pool, pool_of, running_nodes
from server_process import READY, first_line, require
from waiting import wait_for

FIRST, SECOND = TWO
SIZES = {"num_blocks": 100, "block_size": 4}
LEASE_MS = "1000"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes("--node-lease-ms", LEASE_MS) as nodes:
        yield nodes


@contextmanager
def held_blocks(nodes: Nodes, path: str) -> Iterator[tuple[str, int]]:
    """A lease that holds seven blocks, and under which number its pool is owned."""
    lease = make_lease(nodes.url(FIRST), path)
    reply = follow(nodes.url(FIRST), "POST", f"{path}/blocks/allocate", {"lease_id": lease, "num_blocks": 7})
    assert (reply.status, reply.ownership is None) == (200, False)
    yield lease, reply.ownership or 0
    stats = follow(nodes.url(FIRST), "GET", f"{path}/stats")
    assert stats.body["num_held_blocks"] == 8
    assert (stats.ownership or 0) > (reply.ownership or 0)
    assert follow(nodes.url(FIRST), "GET", f"{path}/audit").body["ok"]


def test_a_node_that_nats_does_not_hear_answers_for_no_pool_until_it_does_again() -> None:
    with running_nodes("--node-lease-ms", LEASE_MS, names=(FIRST,)) as nodes:
        url, path = nodes.url(FIRST), make_pool(nodes, "pool", SIZES)
        with held_blocks(nodes, path) as (lease, number):
            one = {"lease_id": lease, "num_blocks": 1}
            nodes.nats.pause(0)
            write = ask(url, "POST", f"{path}/blocks/allocate", one, Idempotency_Key="once")
            assert write.is_moving
            assert write.body["retry_after_ms"] > 0
            for target in (path, f"{path}/stats", f"{path}/sequences/s", "/v1/pools/unknown", "/v1/pools"):
                assert ask(url, "GET", target).is_moving
            for call in ("lookup", "step", "allocate", "free", "leases"):
                assert ask(url, "POST", f"{path}/{call}", {}).is_moving
            assert ask(url, "PUT", "/v1/pools/another", SIZES).is_moving
            assert ask(url, "DELETE", path).is_moving
            assert ask(url, "GET", "/readyz").is_moving
            assert [ask(url, "GET", each).status for each in ("/healthz", "/metrics")] == [200, 200]
            assert nodes.report(FIRST).lease_left_ms == 0
            wait_for(lambda: not nodes.report(FIRST).is_connected)

            nodes.nats.resume(0)
            wait_for(lambda: ask(url, "GET", f"{path}/stats").status == 200)
            assert (ask(url, "GET", path).ownership or 0) > number
            assert ask(url, "GET", "/readyz").status == 200
            wait_for(lambda: nodes.report(FIRST).is_connected)
            done = [
                follow(url, "POST", f"{path}/blocks/allocate", one, Idempotency_Key="once") for _ in range(2)
            ]
            assert [each.status for each in done] == [200, 200]
            assert done[0].data == done[1].data  # whether the first one was stored or not
            assert "another" not in {each.pool for each in nodes.report(FIRST).pools}
        assert nodes.processes[FIRST].stop() == 0  # though there is nobody to leave its pool to


@contextmanager
def stopped(nodes: Nodes, name: str) -> Iterator[None]:
    """The process of a node does nothing within the block."""
    process = nodes.processes[name].process
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_an_owner_that_slept_through_a_take_over_gives_nobody_an_answer_of_its_own(nodes: Nodes) -> None:
    name = pool_of(FIRST)
    path = make_pool(nodes, name, SIZES)
    nodes.settle(name, FIRST)
    with held_blocks(nodes, path) as (lease, _), ExitStack() as stack:
        one = f'{{"lease_id": "{lease}", "num_blocks": 1}}'
        calls = [
            ("GET", path, ""),
            ("GET", f"{path}/stats", ""),
            ("GET", f"{path}/audit", ""),
            ("PUT", path, '{"num_blocks": 100, "block_size": 4}'),
            ("POST", f"{path}/blocks/allocate", one),
            ("POST", f"{path}/leases/{lease}/renew", ""),
            ("POST", f"{path}/lookup", '{"num_tokens": 5, "token_ids": [1, 2, 3, 4, 5]}'),
            ("POST", f"{path}/step", f'{{"lease_id": "{lease}"}}'),
        ]
        place = urlsplit(nodes.url(FIRST)).netloc
        known = [stack.enter_context(connection_to(place)) for _ in calls]
        for each in known:  # the node has taken these connections
            each.request("GET", "/healthz")
            each.getresponse().read()
        with stopped(nodes, FIRST):
            wait_for(lambda: nodes.owner(name, by=SECOND) == SECOND)
            fresh = [stack.enter_context(connection_to(place)) for _ in calls]
            for connections in (known, fresh):
                for each, (method, target, body) in zip(connections, calls, strict=True):
                    each.request(method, target, body, {"Content-Type": JSON})
            first = ask(nodes.url(SECOND), "POST", f"{path}/blocks/allocate", one.encode())
            assert first.status == 200
        for connection in (*known, *fresh):
            reply = connection.getresponse()
            said = reply.read()
            assert reply.status in (307, 503), said
            assert reply.headers["Blockyard-Ownership"] is None
        nodes.settle(name, FIRST)  # it is back, and has been given the pool


@contextmanager
def connection_to(place: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(place, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


def test_a_node_whose_name_is_in_use_waits_for_it(nodes: Nodes, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with running_second(nodes, said) as second:
        wait_for(lambda: "the last lease under this node's name is waited for" in said.read_text())
        assert second.poll() is None
        assert nodes.live(SECOND) == {*TWO}
        nodes.kill(FIRST)
        assert first_line(require(second.stdout)).startswith(READY)


@contextmanager
def running_second(nodes: Nodes, said: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process of the first node's name, at another address."""
    named = ("--node-name", FIRST, "--port", "0", "--log-level", "info")
    with said.open("wb") as file, nodes.begin(FIRST, *named, stderr=file.fileno()) as process:
        try:
            yield process
        finally:
            process.kill()
