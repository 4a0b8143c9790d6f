"""A server process with tokens: on kept connections, on both paths, in streams, in what it logs."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from access.token_files import add_token, bearing, id_of, revoke_token, secret_of
from server_process import ServerProcess, logging_server, running_server
from tracing.collector import collecting
from waiting import wait_for

POOL = "/v1/pools/acme-pool"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@contextmanager
def guarded(file: Path, *options: str, **variables: str) -> Iterator[tuple[ServerProcess, str]]:
    """A server with a pool, and the token of its admin."""
    admin = add_token(file, "admin")
    with running_server("--token-file", str(file), *options, **variables) as server:
        body = {"num_blocks": 100, "block_size": 16, "events": True}
        assert server.call("PUT", POOL, body, **bearing(admin))[0] == 201
        yield server, admin


def answered(server: ServerProcess, method: str, path: str, token: str) -> int:
    return server.call(method, path, **bearing(token))[0]


def test_a_kept_connection_is_asked_anew_with_each_request(file: Path) -> None:
    with guarded(file) as (server, admin):
        token = add_token(file, "allocate")
        wait_for(lambda: answered(server, "GET", f"{POOL}/stats", token) == 200)
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:

            def ask(method: str, path: str) -> int:
                body = None if method == "GET" else b"{}"
                connection.request(method, POOL + path, body, bearing(token))
                reply = connection.getresponse()
                reply.read()
                return reply.status

            calls = [("GET", "/stats"), ("POST", "/allocate"), ("POST", "/leases")]
            assert [ask(*call) for call in calls] == [200, 422, 422]
            kept = connection.sock
            revoke_token(file, token)
            wait_for(lambda: ask("GET", "/stats") == 401)
            assert [ask(*call) for call in calls] == [401, 401, 401]
            assert connection.sock is kept
        assert answered(server, "GET", f"{POOL}/stats", admin) == 200


def exchange(port: int, head: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    """A POST as raw bytes in one packet; what comes back, without its date."""
    lines = [head, "Host: test", f"Content-Length: {len(body)}", *(f"{n}: {v}" for n, v in headers.items())]
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        found = {name.lower(): value for name, value in reply.getheaders()}
        for name in ("date", "connection"):
            found.pop(name, None)
        return reply.status, found, reply.read()


@pytest.mark.parametrize("traces", [(), ("--traces",)], ids=["", "traced"])
def test_the_short_path_and_the_long_one_answer_the_same(file: Path, traces: tuple[str, ...]) -> None:
    tokens = {
        "nobody": None,
        "wrong": "byd_00_00",
        "reader": add_token(file, "read"),
        "worker": add_token(file, "work"),
        "scheduler": add_token(file, "allocate", tenant="acme"),
        "elsewhere": add_token(file, "allocate", pools=("other-*",)),
    }
    found: dict[tuple[str, str], int] = {}
    with collecting() as collector, guarded(file, *traces, **collector.variables) as (server, _):
        for (who, token), call in (
            (pair, call)
            for pair in tokens.items()
            for call in ("allocate", "free", "lookup", "step", "commit")
        ):
            head, body = f"POST {POOL}/{call} HTTP/1.1", b'{"num_tokens": 1}'
            short = exchange(server.port, head, bearing(token), body)
            long = exchange(server.port, head, {**bearing(token), "Connection": "close"}, body)
            assert short == long
            found[who, call] = short[0]
    for call in ("allocate", "free", "step", "commit"):
        statuses = [found[who, call] for who in tokens]
        assert statuses == [401, 401, 403, 403, 422, 404]
    assert [found[who, "lookup"] for who in tokens] == [401, 401, 200, 200, 200, 404]


def test_a_body_is_not_waited_for_where_nobody_is_known(file: Path) -> None:
    with (
        guarded(file, "--body-timeout-s", "600") as (server, _),
        closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as connection,
    ):
        connection.sendall(
            f"PUT {POOL} HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert connection.recv(10_000).startswith(b"HTTP/1.1 401 ")


@contextmanager
def streaming(server: ServerProcess, path: str, token: str) -> Iterator[http.client.HTTPResponse]:
    """A stream of events that has begun."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request("GET", path, headers=bearing(token))
        reply = connection.getresponse()
        assert reply.status == 200
        assert reply.read1()
        yield reply


@pytest.mark.parametrize("path", ["/v1/watch", f"{POOL}/events"])
@pytest.mark.parametrize("change", ["revoked", "other rights"])
def test_a_stream_ends_when_its_token_does(file: Path, path: str, change: str) -> None:
    with guarded(file) as (server, _):
        token = add_token(file, "read")
        wait_for(lambda: answered(server, "GET", "/v1/pools", token) == 200)
        with streaming(server, path, token) as stream:
            if change == "revoked":
                revoke_token(file, token)
            else:
                document = json.loads(file.read_text())
                document["tokens"][-1]["pools"] = ["acme-*"]
                file.write_text(json.dumps(document))
            wait_for(lambda: not stream.read1())  # its end
        assert answered(server, "GET", "/v1/pools", token) == (401 if change == "revoked" else 200)


def test_a_stream_goes_on_when_other_tokens_end(file: Path) -> None:
    with guarded(file) as (server, admin):
        token, other = add_token(file, "read"), add_token(file, "read")
        wait_for(lambda: answered(server, "GET", "/v1/pools", other) == 200)
        with streaming(server, "/v1/watch", token) as stream:
            revoke_token(file, other)
            wait_for(lambda: answered(server, "GET", "/v1/pools", other) == 401)
            server.call("PUT", "/v1/pools/new", {"num_blocks": 10, "block_size": 16}, **bearing(admin))
            wait_for(lambda: b'"pool":"new"' in stream.readline())


def test_a_watcher_sees_no_pool_out_of_its_reach(file: Path) -> None:
    with guarded(file) as (server, admin):
        server.call("PUT", "/v1/pools/other", {"num_blocks": 10, "block_size": 16}, **bearing(admin))
        token = add_token(file, "read", pools=("acme-*",))
        wait_for(lambda: answered(server, "GET", "/v1/pools", token) == 200)
        with streaming(server, "/v1/watch?pool=other", token) as stream:
            data = next(line for line in stream if line.startswith(b"data: "))
        seen = json.loads(data.removeprefix(b"data: "))
        assert [pool["pool"] for pool in seen["pools"]] == ["acme-pool"]
        assert (seen["num_pools"], seen["num_matching"], seen["chosen"]) == (1, 1, None)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_token_stands_in_logs_metrics_or_traces(file: Path, tmp_path: Path, log_format: str) -> None:
    admin = add_token(file, "admin")
    revoked, wrong = add_token(file, "read"), f"byd_{id_of(admin)}_{'5ec7e7' * 10}"
    digest = json.loads(file.read_text())["tokens"][0]["sha256"]
    log = tmp_path / "log"
    options = ("--token-file", str(file), "--log-level", "debug", "--log-format", log_format, "--traces")
    with log.open("wb") as stderr, collecting() as collector:
        with logging_server(stderr.fileno(), *options, **collector.variables) as server:
            assert server.call("PUT", POOL, {"num_blocks": 100, "block_size": 16}, **bearing(admin))[0] == 201
            revoke_token(file, revoked)
            wait_for(lambda: answered(server, "GET", POOL, revoked) == 401)
            for token in (admin, wrong, "", f"{admin}0", secret_of(admin)):
                server.call("POST", f"{POOL}/allocate", {"num_tokens": 1}, **bearing(token))
                server.call("PUT", f"{POOL}-2", {"num_blocks": 1, "blocksize": 16}, **bearing(token))
                server.call("GET", "/nothing", **bearing(token))
            file.write_text(file.read_text()[:-30])
            wait_for(lambda: b"tokens stay as they were" in log.read_bytes())
            metrics = _text(server, "/metrics", admin)
        traced = repr(collector.spans)
    assert "/v1/pools/acme-pool/allocate" in traced
    written = log.read_text()
    assert id_of(admin) in written
    for text in (written, metrics, traced):
        for secret in (secret_of(admin), secret_of(revoked), "5ec7e7" * 4, digest):
            assert secret not in text


def _text(server: ServerProcess, path: str, token: str) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request("GET", path, headers=bearing(token))
        reply = connection.getresponse()
        assert reply.status == 200
        return reply.read().decode()


FAILING = """
from blockyard.server import logs
import structlog, sys

def fail(headers):
    raise OSError("a mistake")

logs.configure("debug", sys.argv[1])
try:
    fail({b"authorization": b"Bearer byd_00_5ec7e7"})
except OSError:
    structlog.get_logger().exception("failed")
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_logged_traceback_has_no_values_of_variables(log_format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING, log_format], capture_output=True, text=True, timeout=60, check=True
    )
    assert "a mistake" in done.stderr
    assert "fail" in done.stderr
    assert "authorization" not in done.stderr.replace(FAILING, "")


def test_a_call_that_waits_for_blocks_is_refused_when_its_token_ends(file: Path) -> None:
    with guarded(file) as (server, admin), ThreadPoolExecutor(1) as threads:
        token = add_token(file, "allocate", tenant="red")
        wait_for(lambda: answered(server, "GET", f"{POOL}/stats", token) == 200)
        for bearer in (admin, token):
            lease = {"holder": "test", "ttl_ms": 60_000}
            status, granted = server.call("POST", f"{POOL}/leases", lease, **bearing(bearer))
            assert status == 201
            ask = {"lease_id": granted["lease_id"], "num_blocks": 99, "wait_ms": 60_000}
            waiting = threads.submit(server.call, "POST", f"{POOL}/blocks/allocate", ask, **bearing(bearer))
            if bearer == admin:
                assert waiting.result()[0] == 200
        of_tenant = f"{POOL}/tenants/red"
        wait_for(lambda: server.call("GET", of_tenant, **bearing(admin))[1]["num_waiting"] == 1)
        revoke_token(file, token)
        status, refused = waiting.result()
        assert (status, refused["code"]) == (401, "unauthorized")
        assert server.call("GET", of_tenant, **bearing(admin))[1]["num_waiting"] == 0


def test_a_body_that_arrives_after_its_token_has_ended_is_nobodys(file: Path) -> None:
    with guarded(file, "--body-timeout-s", "60") as (server, _):
        token = add_token(file, "allocate")
        wait_for(lambda: answered(server, "GET", f"{POOL}/stats", token) == 200)
        body = b'{"holder": "test", "ttl_ms": 1000}'
        head = f"POST {POOL}/leases HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n"
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-1])
            revoke_token(file, token)
            wait_for(lambda: answered(server, "GET", f"{POOL}/stats", token) == 401)
            connection.sendall(body[-1:])
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            assert reply.status == 401
