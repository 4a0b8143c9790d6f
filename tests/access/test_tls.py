"""TLS, one-sided and mutual, between real servers and every kind of client."""

import asyncio
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from access.certificates import Certificates, make_certificates
from access.token_files import add_token
from blockyard.client import (
    AsyncClient,
    Client,
    ConnectionLost,
    PoolElsewhere,
    RetryPolicy,
    TlsFiles,
    TlsRefused,
)
from blockyard.client.lean import LeanTransport
from blockyard.client.wire import Request
from blockyard.server.http_protocol import NUM_SPARE_CONNECTIONS
from client.peers import Peer, elsewhere, peer
from server_process import ServerProcess, run, running_server
from waiting import wait_for

Kind: TypeAlias = Literal["lean", "httpx"]
KINDS: tuple[Kind, ...] = ("lean", "httpx")
WRONG = "byd_00_00"
QUICK = RetryPolicy(max_attempts=2, first_pause_s=0.001)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(made: Certificates) -> Iterator[ServerProcess]:
    with running_server("--tls-cert", str(made.server), "--tls-key", str(made.server)) as server:
        yield server


@pytest.fixture(scope="module")
def mutual_server(made: Certificates) -> Iterator[ServerProcess]:
    certificate = ("--tls-cert", str(made.server), "--tls-key", str(made.server))
    with running_server(*certificate, "--tls-client-ca", str(made.authority)) as server:
        yield server


def hold_and_free(url: str, kind: Kind, tls: TlsFiles | ssl.SSLContext | None) -> int:
    """Blocks freed by a synchronous client that has held some."""
    with Client(url, transport=kind, tls=tls, retries=QUICK) as client:
        pool = client.create_pool(f"sync-{kind}", num_blocks=2_000, block_size=16)
        with pool.lease("test", renew=False) as lease:
            for number in range(10):
                lease.allocate(f"s{number}", 1_600)
            return lease.free([f"s{number}" for number in range(10)]).num_freed_blocks


async def hold_and_free_async(url: str, kind: Kind, tls: TlsFiles | ssl.SSLContext | None) -> int:
    async with AsyncClient(url, transport=kind, tls=tls, retries=QUICK) as client:
        pool = await client.create_pool(f"async-{kind}", num_blocks=2_000, block_size=16)
        async with pool.lease("test", renew=False) as lease:
            for number in range(10):
                await lease.allocate(f"s{number}", 1_600)
            return (await lease.free([f"s{number}" for number in range(10)])).num_freed_blocks


def fails(url: str, kind: Kind, tls: TlsFiles | None) -> list[type[Exception]]:
    """What a synchronous client raises, and an asynchronous one."""
    with pytest.raises(ConnectionLost) as told:
        hold_and_free(url, kind, tls)
    with pytest.raises(ConnectionLost) as told_async:
        asyncio.run(hold_and_free_async(url, kind, tls))
    return [told.type, told_async.type]


def test_its_url_says_so(tls_server: ServerProcess) -> None:
    assert tls_server.url.startswith("https://127.0.0.1:")


@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_trust_its_authority_hold_blocks(
    tls_server: ServerProcess, made: Certificates, kind: Kind
) -> None:
    for tls in (TlsFiles(ca_cert=made.authority), ssl.create_default_context(cafile=made.authority)):
        assert hold_and_free(tls_server.url, kind, tls) == 1_000
        assert asyncio.run(hold_and_free_async(tls_server.url, kind, tls)) == 1_000


def node_with_tls(made: Certificates, owner: str) -> AbstractContextManager[Peer]:
    """A node that sends all calls to ``owner``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server)
    return peer(elsewhere(owner, 1), tls=context)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_follow_a_pool_to_an_owner_that_they_trust(
    tls_server: ServerProcess, made: Certificates, kind: Kind
) -> None:
    tls = TlsFiles(ca_cert=made.authority)
    with node_with_tls(made, tls_server.url) as node:
        assert hold_and_free(node.url, kind, tls) == 1_000
        assert asyncio.run(hold_and_free_async(node.url, kind, tls)) == 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_with_tls_does_not_follow_a_pool_to_where_there_is_none(
    made: Certificates, kind: Kind
) -> None:
    tls = TlsFiles(ca_cert=made.authority)
    with peer(b"") as owner, node_with_tls(made, owner.url) as node:
        with pytest.raises(PoolElsewhere):
            hold_and_free(node.url, kind, tls)
        with pytest.raises(PoolElsewhere):
            asyncio.run(hold_and_free_async(node.url, kind, tls))
        assert owner.num_connections == 0


@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_trust_another_authority_send_nothing(
    tls_server: ServerProcess, made: Certificates, kind: Kind
) -> None:
    assert fails(tls_server.url, kind, TlsFiles(ca_cert=made.stranger)) == [TlsRefused, TlsRefused]
    assert fails(tls_server.url, kind, None) == [TlsRefused, TlsRefused]


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_for_another_name_is_not_trusted(
    tls_server: ServerProcess, made: Certificates, kind: Kind
) -> None:
    url = tls_server.url.replace("127.0.0.1", "localhost")
    assert fails(url, kind, TlsFiles(ca_cert=made.authority)) == [TlsRefused, TlsRefused]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_asks_for_certificates_serves_those_that_have_one(
    mutual_server: ServerProcess, made: Certificates, kind: Kind
) -> None:
    tls = TlsFiles(ca_cert=made.authority, client_cert=made.client)
    assert hold_and_free(mutual_server.url, kind, tls) == 1_000
    assert asyncio.run(hold_and_free_async(mutual_server.url, kind, tls)) == 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_it_serves_nobody_else(mutual_server: ServerProcess, made: Certificates, kind: Kind) -> None:
    for certificate in (None, made.strange_client):
        fails(mutual_server.url, kind, TlsFiles(ca_cert=made.authority, client_cert=certificate))


def test_tls_before_1_2_is_refused(tls_server: ServerProcess, made: Certificates) -> None:
    context = ssl.create_default_context(cafile=made.authority)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with (
        closing(socket.create_connection(("127.0.0.1", tls_server.port), timeout=30)) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_plain_http_gets_no_answer_of_a_server_with_tls(tls_server: ServerProcess) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        urllib.request.urlopen(tls_server.url.replace("https", "http") + "/healthz", timeout=30)


def test_a_kept_connection_over_tls_is_used_again(tls_server: ServerProcess, made: Certificates) -> None:
    transport = LeanTransport(TlsFiles(ca_cert=made.authority).context())
    request = Request("GET", tls_server.url, "/healthz")
    for _ in range(3):
        assert transport.send(request, 30).status == 200
    ((idle,),) = transport._of_this_process().idle.values()
    assert transport.send(request, 30).status == 200
    assert transport._of_this_process().idle[tls_server.url] == [idle]
    transport.close()


def test_a_transport_without_tls_says_what_it_lacks(tls_server: ServerProcess) -> None:
    with pytest.raises(ValueError, match="without TLS"):
        LeanTransport().send(Request("GET", tls_server.url, "/healthz"), 30)


def test_a_server_ends_at_once_though_idle_connections_do_not_answer_the_end_of_tls(
    made: Certificates,
) -> None:
    certificate = ("--tls-cert", str(made.server), "--tls-key", str(made.server))
    with running_server(*certificate, "--shutdown-timeout-s", "600") as server:
        transport = LeanTransport(TlsFiles(ca_cert=made.authority).context())
        transport.send(Request("GET", server.url, "/healthz"), 30)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(25) == 0  # asyncio would wait for each for 30 s
        transport.close()


def test_tokens_go_over_tls_and_commands_reach_it(made: Certificates, tmp_path: Path) -> None:
    file, token_file = tmp_path / "tokens.json", tmp_path / "token"
    token = add_token(file, "admin")
    token_file.write_text(token + "\n")
    options = {
        "--tls-cert": made.server,
        "--tls-key": made.server,
        "--tls-client-ca": made.authority,
        "--token-file": file,
    }
    with running_server(*(str(part) for pair in options.items() for part in pair)) as server:
        tls = ("--ca-cert", made.authority, "--client-cert", made.client)
        asked = run("pools", "--url", server.url, *tls, "--token-from", token_file)
        assert (asked.returncode, asked.stdout) == (0, f"no pools at {server.url}\n")
        asked = run("pools", "--url", server.url, *tls, BLOCKYARD_TOKEN=WRONG)
        assert asked.returncode == 1
        assert asked.stderr.startswith("Error: unauthorized: the server does not know this token: ")
        variables = {
            "BLOCKYARD_URL": server.url,
            "BLOCKYARD_CA_CERT": str(made.authority),
            "BLOCKYARD_CLIENT_CERT": str(made.client),
            "BLOCKYARD_TOKEN": token,
        }
        with Client(
            server.url, token=token, tls=TlsFiles(ca_cert=made.authority, client_cert=made.client)
        ) as c:
            c.create_pool("shown", num_blocks=10, block_size=16)
        for command in (("stats", "shown"), ("audit", "shown"), ("top",), ("top", "shown")):
            done = run(*command, **variables)
            assert done.returncode == 0, done.stderr
            assert "shown" in done.stdout
        replayed = run("replay", "--requests", "20", "--url", server.url, **variables)
        assert replayed.returncode == 0, replayed.stderr


def test_connections_that_never_agree_on_tls_are_bounded_in_number_and_time(made: Certificates) -> None:
    options = ("--max-connections", "2", "--head-timeout-s", "2", "--log-level", "warning")
    with running_server("--tls-cert", str(made.server), "--tls-key", str(made.server), *options) as server:
        address = ("127.0.0.1", server.port)
        silent = [socket.create_connection(address, timeout=30) for _ in range(100)]
        try:
            wait_for(lambda: sum(map(is_ended, silent)) == 100 - 2 - NUM_SPARE_CONNECTIONS)
            wait_for(lambda: all(map(is_ended, silent)))
        finally:
            for each in silent:
                each.close()
        context = ssl.create_default_context(cafile=made.authority)
        with urllib.request.urlopen(f"{server.url}/v1/pools", context=context, timeout=30) as reply:
            assert reply.status == 200


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
