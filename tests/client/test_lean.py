"""Connections that the lean transport keeps, replaces and gives up."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from blockyard.client import Client, ConnectionLost, Request
from blockyard.client.errors import NothingArrived
from blockyard.client.lean import MAX_IDLE_CONNECTIONS, LeanTransport, can_go_lean
from client.peers import DROP, peer, response


def test_requests_share_a_connection() -> None:
    with peer(response(200, {})) as server:
        transport = LeanTransport()
        for _ in range(3):
            transport.send(Request("GET", server.url, "/"), 1.0)
        transport.close()
        assert server.num_connections == 1


def test_a_response_that_ends_its_connection_is_obeyed() -> None:
    with peer(response(200, {}, connection="close")) as server:
        transport = LeanTransport()
        for _ in range(2):
            transport.send(Request("GET", server.url, "/"), 1.0)
        assert server.num_connections == 2


def test_bytes_after_a_response_end_its_connection() -> None:
    with peer(response(200, {}) + b"HTTP/1.1 200 OK\r\n\r\n") as server:
        transport = LeanTransport()
        for _ in range(2):
            transport.send(Request("GET", server.url, "/"), 1.0)
        assert server.num_connections == 2


def test_a_kept_connection_that_its_server_closed_is_told_and_not_replaced() -> None:
    with peer(response(200, {}), DROP, response(200, {})) as server:
        transport = LeanTransport()
        transport.send(Request("POST", server.url, "/"), 1.0)
        with pytest.raises(NothingArrived):
            transport.send(Request("POST", server.url, "/"), 1.0)
        assert len(server.received) == 2
        transport.close()


def test_a_first_request_without_an_answer_is_no_fault_of_keeping() -> None:
    with peer(DROP) as server:
        with pytest.raises(ConnectionLost) as caught:
            LeanTransport().send(Request("GET", server.url, "/"), 1.0)
        assert not isinstance(caught.value, NothingArrived)


def test_so_many_idle_connections_are_kept_and_no_more() -> None:
    num_used = MAX_IDLE_CONNECTIONS + 2
    together = threading.Barrier(num_used)

    def answer(_: object) -> bytes:
        together.wait(10)
        return response(200, {})

    with peer(answer) as server:
        transport = LeanTransport()
        for num_connections in (num_used, num_used + 2):
            users = [
                threading.Thread(target=transport.send, args=(Request("GET", server.url, "/"), 10.0))
                for _ in range(num_used)
            ]
            for user in users:
                user.start()
            for user in users:
                user.join()
            assert server.num_connections == num_connections
        transport.close()


@contextmanager
def unanswering(num_addresses: int) -> Iterator[list[tuple[str, int]]]:
    """Listeners that take no connection: their queues are full."""
    with ExitStack() as opened:
        addresses = []
        for _ in range(num_addresses):
            listener = opened.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            addresses.append(listener.getsockname())
            for _ in range(4):
                filling = opened.enter_context(socket.socket())
                filling.setblocking(False)
                filling.connect_ex(addresses[-1])
        yield addresses


def resolve(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    found = socket.getaddrinfo

    def lookup(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "several.test":
            return found(host, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def test_several_silent_addresses_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, ["127.0.0.1", "127.0.0.1", "127.0.0.1"])
    with unanswering(1) as [(_, port)]:
        began_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="cannot connect"):
            LeanTransport().send(Request("GET", f"http://several.test:{port}", "/"), 0.6)
        assert time.monotonic() - began_s < 1.1


def test_a_silent_address_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, ["127.0.0.1", "127.0.0.2"])
    with unanswering(1) as [(_, port)], socket.create_server(("127.0.0.2", port)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1024)
                connection.sendall(response(200, {}))

        server = threading.Thread(target=serve)
        server.start()
        transport = LeanTransport()
        assert transport.send(Request("GET", f"http://several.test:{port}", "/"), 1.0).status == 200
        server.join()
        transport.close()


def test_connecting_and_the_exchange_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, ["127.0.0.1", "127.0.0.2"])
    with unanswering(1) as [(_, port)], socket.create_server(("127.0.0.2", port)):
        began_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="in time"):
            LeanTransport().send(Request("GET", f"http://several.test:{port}", "/"), 0.6)
        assert time.monotonic() - began_s < 0.8


def test_bytes_that_come_while_a_connection_is_idle_answer_nothing() -> None:
    transport = LeanTransport()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        request = Request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}", "/")

        def serve() -> None:
            with listener.accept()[0] as first:
                first.recv(1024)
                first.sendall(response(200, {}))
                answered.wait(5)
                first.sendall(response(418, {}))
                intruded.set()
                with listener.accept()[0] as second:
                    second.recv(1024)
                    second.sendall(response(200, {}))

        answered, intruded = threading.Event(), threading.Event()
        server = threading.Thread(target=serve)
        server.start()
        assert transport.send(request, 5.0).status == 200
        answered.set()
        intruded.wait(5)
        assert transport.send(request, 5.0).status == 200
        server.join()
    transport.close()


def test_a_closed_transport_sends_nothing() -> None:
    transport = LeanTransport()
    transport.close()
    with pytest.raises(RuntimeError, match="closed"):
        transport.send(Request("GET", "http://127.0.0.1:9", "/"), 1.0)


FORKING = """
import os, sys, threading
from blockyard.client import Client
sys.setswitchinterval(1e-6)
client = Client(sys.argv[1])
assert client.health()
child = os.fork()
healthy = []
def ask():
    healthy.extend(client.health() for _ in range(20))
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert healthy == [True] * 160
client.close()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_opens_connections_of_its_own(server_url: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", FORKING, server_url], timeout=30, check=False)
    assert done.returncode == 0


FORKED_WHILE_LOCKED = """
import os, sys, threading
from blockyard.client.lean import LeanTransport
from blockyard.client import Request
transport = LeanTransport()
request = Request("GET", sys.argv[1], "/healthz")
assert transport.send(request, 5.0).status == 200
stop = threading.Event()
def use():
    while not stop.is_set():
        assert transport.send(request, 5.0).status == 200
threads = [threading.Thread(target=use, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
children = []
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(0 if transport.send(request, 5.0).status == 200 else 1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.set()
for thread in threads:
    thread.join()
transport.close()
sys.exit(codes != [0] * 20)
"""


def test_a_forked_child_never_uses_its_parents_lock_or_connections(server_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED_WHILE_LOCKED, server_url], timeout=30, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("url", "environment", "is_lean"),
    [
        ("http://server:1", {}, True),
        ("https://server:1", {}, True),
        ("https://server:1", {"https_proxy": "http://proxy:3128"}, False),
        ("https://server:1", {"http_proxy": "http://proxy:3128"}, True),
        ("http://server:1", {"http_proxy": "http://proxy:3128"}, False),
        ("http://server:1", {"all_proxy": "http://proxy:3128"}, False),
        ("http://server:1", {"https_proxy": "http://proxy:3128"}, True),
        ("http://server:1", {"http_proxy": "http://proxy:3128", "no_proxy": "server"}, True),
    ],
)
def test_the_lean_way_is_taken_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], is_lean: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert can_go_lean(url) is is_lean


def test_a_proxy_is_asked_in_place_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(response(200, {"pools": []})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with Client("http://server.test:1") as client:
            assert client.pools() == []
        assert proxy.received[0].target == "http://server.test:1/v1/pools"
