"""Clients with a token: it is shown to their server, and to nobody else, and a refusal is final."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from access.certificates import make_certificates
from access.token_files import add_token, revoke_token, secret_of
from blockyard.client import (
    AsyncClient,
    BlockyardError,
    Client,
    Forbidden,
    HttpxTransport,
    OtherRefusal,
    PoolNotFound,
    Request,
    Response,
    RetryPolicy,
    TlsFiles,
    Unauthorized,
)
from blockyard.client.delivery import Delivery, Pause, Surroundings
from blockyard.client.protocol import PoolCalls
from blockyard.client.routes import Routes
from blockyard.client.token import token_headers
from blockyard.worker import Worker
from client.peers import peer, problem, response
from server_process import running_server
from waiting import wait_for
from worker.made_pools import plan

TOKEN = "byd_00ff_" + 32 * "5e"
PATIENT = RetryPolicy(max_attempts=4, first_pause_s=0.001)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.mark.parametrize("transport", ["lean", "httpx"])
def test_every_request_of_a_client_shows_its_token(transport: Any) -> None:
    async def ask(url: str) -> None:
        async with AsyncClient(url, token=TOKEN, transport=transport) as client:
            await client.pools()

    with peer(response(200, {"pools": []})) as server:
        with Client(server.url, token=TOKEN, transport=transport) as client:
            client.pools()
            client.ready()
        asyncio.run(ask(server.url))
        shown = [request.headers["authorization"] for request in server.received]
    assert shown == [f"Bearer {TOKEN}"] * 3


def test_a_client_without_one_shows_none() -> None:
    with peer(response(200, {"pools": []})) as server, Client(server.url) as client:
        client.pools()
        assert "authorization" not in server.received[0].headers


@pytest.mark.parametrize("transport", ["lean", "httpx"])
def test_only_a_pools_redirect_is_followed_and_no_token_goes_elsewhere_otherwise(transport: Any) -> None:
    with (
        peer(response(200, {"pools": []})) as elsewhere,
        peer(response(307, location=f"{elsewhere.url}/v1/pools")) as server,
    ):
        with Client(server.url, token=TOKEN, transport=transport) as client, pytest.raises(BlockyardError):
            client.pools()
        assert elsewhere.received == []


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "ä", "a\r\nX: y", " "])
def test_what_cannot_be_a_token_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(ValueError, match="one word of ASCII") as raised:
        Client("http://127.0.0.1:1", token=token)
    assert token not in str(raised.value).split() or not token.strip()
    with pytest.raises(ValueError, match="one word of ASCII"):
        token_headers(token)


@pytest.mark.parametrize("transport", ["lean", "httpx"])
@pytest.mark.parametrize("code", ["unauthorized", "forbidden", "limit_exceeded", "quota_exceeded"])
def test_a_refusal_that_time_does_not_change_is_not_tried_again(transport: Any, code: str) -> None:
    status = {"unauthorized": 401, "forbidden": 403}.get(code, 429)
    with peer(problem(status, code)) as server:
        with (
            Client(server.url, token=TOKEN, transport=transport, retries=PATIENT) as client,
            pytest.raises(BlockyardError) as raised,
        ):
            client.pools()
        assert len(server.received) == 1
    assert raised.value.code == code
    kind = {"unauthorized": Unauthorized, "forbidden": Forbidden}.get(code)
    if kind is not None:
        assert type(raised.value) is kind
    else:
        assert isinstance(raised.value, OtherRefusal) or raised.value.code == code


@pytest.mark.parametrize("code", ["overloaded", "not_ready"])
def test_a_server_that_asks_for_a_pause_gets_it(code: str) -> None:
    call = PoolCalls("pool").stats()
    world = Surroundings(now_s=lambda: 0.0, draw=lambda: 0.5, new_key=lambda: "key", headers=dict)
    policy = RetryPolicy(first_pause_s=0.2)
    delivery = Delivery(call, Routes(["http://server:1"]), policy, world)
    with pytest.raises(BlockyardError) as raised:
        call.read(_refusal(503, code, retry_after_ms=700))
    assert delivery.failed(raised.value, None) == Pause(0.7 + 0.5 * 0.2)


def _refusal(status: int, code: str, **figures: Any) -> Response:

    document = {"code": code, "detail": "why", "status": status, **figures}
    return Response(status, {"content-type": "application/problem+json"}, json.dumps(document).encode())


def test_nothing_that_a_client_says_has_its_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    for url in ("http://127.0.0.1:1", "https://127.0.0.1:1"):
        for transport in ("lean", "httpx"):
            with Client(url, token=TOKEN, transport=transport, retries=PATIENT) as client:
                said += [repr(client), repr(client.pool("p")), repr(client._sender), repr(vars(client))]
                with pytest.raises(BlockyardError) as raised:
                    client.pools()
                said += [repr(raised.value), str(raised.value), repr(raised.value.__cause__)]
    said.append(repr(Request("GET", "http://server", "/", {"Authorization": f"Bearer {TOKEN}"})))
    said.append(caplog.text)
    assert secret_of(TOKEN) not in "\n".join(said)


def test_tls_that_cannot_be_used_is_refused_when_a_client_is_made(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    text = tmp_path / "text"
    text.write_text("hello")
    wrong = {
        "cannot be read": TlsFiles(ca_cert=tmp_path / "missing"),
        "no certificates": TlsFiles(ca_cert=text),
        "client_key goes with client_cert": TlsFiles(client_key=made.client),
        "one without its own key": TlsFiles(client_cert=made.client, client_key=made.server),
    }
    for said, tls in wrong.items():
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match=said):
                kind("https://127.0.0.1:1", tls=tls)
    with pytest.raises(ValueError, match="tls goes with https"):
        Client("http://127.0.0.1:1", tls=TlsFiles(ca_cert=made.authority))
    with pytest.raises(ValueError, match="give it to yours"):
        Client("https://127.0.0.1:1", transport=HttpxTransport(), tls=TlsFiles(ca_cert=made.authority))


def test_a_worker_shows_its_token_and_trusts_its_authority(file: Path, tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    tls = TlsFiles(ca_cert=made.authority)
    admin, worker_token = add_token(file, "admin"), add_token(file, "work")
    options = ("--token-file", str(file), "--tls-cert", str(made.server), "--tls-key", str(made.server))
    with running_server(*options) as server, Client(server.url, token=admin, tls=tls) as client:
        pool = client.create_pool("planned", plan=plan())
        with Worker(server.url, "planned", token=worker_token, tls=tls) as worker:
            worker.beat()
            (known,) = pool.workers()
            assert known.worker_id == worker.worker_id
        assert pool.workers() == []
        with pytest.raises(Unauthorized):
            Worker(server.url, "planned", tls=tls)


def test_a_scheduler_whose_token_is_revoked_learns_of_it(file: Path) -> None:
    admin, token = add_token(file, "admin"), add_token(file, "allocate", pools=("acme-*",))
    with running_server("--token-file", str(file)) as server:
        with Client(server.url, token=admin) as client:
            client.create_pool("acme-1", num_blocks=10, block_size=16)
            client.create_pool("other", num_blocks=10, block_size=16)
        with Client(server.url, token=token, retries=PATIENT) as client:
            assert [pool.pool for pool in client.pools()] == ["acme-1"]
            with pytest.raises(PoolNotFound):
                client.pool("other").stats()
            with pytest.raises(Forbidden):
                client.pool("acme-1").delete()
            lease = client.pool("acme-1").lease("test", renew=False)
            lease.allocate("s", 16)
            revoke_token(file, token)

            def is_refused() -> bool:
                try:
                    client.pool("acme-1").stats()
                except Unauthorized:
                    return True
                return False

            wait_for(is_refused)
            with pytest.raises(Unauthorized):
                lease.free(["s"])
