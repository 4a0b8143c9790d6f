"""Connections that the lean transport for event loops keeps, replaces and gives up, on both kinds of loop."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import pytest
import uvloop

from blockyard.client import (
    AsyncClient,
    BodyTooLarge,
    ConnectionLost,
    Request,
    Response,
    UnexpectedReply,
)
from blockyard.client.async_lean import MAX_CONNECTIONS, AsyncLeanTransport
from blockyard.client.errors import NothingArrived
from client.peers import DROP, Peer, Received, peer, response, silence
from client.test_lean import resolve, unanswering

T = TypeVar("T")
Run: TypeAlias = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Runs a coroutine to its end."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_it(work: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)

    return run_it


def get(server: Peer) -> Request:
    return Request("GET", server.url, "/")


async def send_all(
    server: Peer, num_requests: int, *, together: bool = False, timeout_s: float = 5.0
) -> list[Response]:
    """The responses to so many requests over one transport."""
    transport = AsyncLeanTransport()
    try:
        if together:
            sending = (transport.send(get(server), timeout_s) for _ in range(num_requests))
            return await asyncio.gather(*sending)
        return [await transport.send(get(server), timeout_s) for _ in range(num_requests)]
    finally:
        await transport.close()


def test_requests_share_a_connection(run: Run[Any]) -> None:
    with peer(response(200, {})) as server:
        run(send_all(server, 3))
        assert server.num_connections == 1


def test_a_response_that_ends_its_connection_is_obeyed(run: Run[Any]) -> None:
    with peer(response(200, {}, connection="close")) as server:
        run(send_all(server, 2))
        assert server.num_connections == 2


def test_bytes_after_a_response_end_its_connection(run: Run[Any]) -> None:
    with peer(response(200, {}) + b"HTTP/1.1 200 OK\r\n\r\n") as server:
        run(send_all(server, 2))
        assert server.num_connections == 2


def test_a_kept_connection_that_its_server_closed_is_told_and_not_replaced(run: Run[Any]) -> None:
    with peer(response(200, {}), DROP, response(200, {})) as server:
        with pytest.raises(NothingArrived):
            run(send_all(server, 3))
        assert len(server.received) == 2


def test_a_first_request_without_an_answer_is_no_fault_of_keeping(run: Run[Any]) -> None:
    with peer(DROP) as server:
        with pytest.raises(ConnectionLost) as caught:
            run(send_all(server, 1))
        assert not isinstance(caught.value, NothingArrived)


def test_a_peer_that_closes_inside_a_body_has_lost_the_connection(run: Run[Any]) -> None:
    whole = response(200, {"a": "b"}, connection="close")
    with peer(response(200, {}), whole[:-3]) as server:
        with pytest.raises(ConnectionLost, match="closed") as caught:
            run(send_all(server, 2))
        assert not isinstance(caught.value, NothingArrived)


def test_what_is_no_http_is_refused(run: Run[Any]) -> None:
    with peer(b"SSH-2.0-OpenSSH\r\n\r\n") as server, pytest.raises(UnexpectedReply, match="status line"):
        run(send_all(server, 1))


def test_a_response_of_many_pieces_is_put_together(run: Run[Any]) -> None:
    whole = response(200, {"numbers": list(range(9))})
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(2):
                    connection.recv(1024)
                    for at in range(len(whole)):
                        connection.sendall(whole[at : at + 1])

        server = threading.Thread(target=serve)
        server.start()
        replies = run(send_all(Peer(f"http://127.0.0.1:{listener.getsockname()[1]}"), 2))
        server.join()
    assert [reply.body for reply in replies] == [whole.partition(b"\r\n\r\n")[2]] * 2


def test_many_calls_at_once_share_so_many_connections_and_each_gets_its_own_answer(run: Run[Any]) -> None:
    num_calls = MAX_CONNECTIONS * 3

    def echo(request: Received) -> bytes:
        return response(200, request.target)

    async def main() -> None:
        transport = AsyncLeanTransport()
        targets = [f"/{number}" for number in range(num_calls)]
        replies = await asyncio.gather(
            *(transport.send(Request("GET", server.url, target), 20.0) for target in targets)
        )
        assert [reply.body.decode().strip('"') for reply in replies] == targets
        await transport.close()

    with peer(echo) as server:
        run(main())
        assert server.num_connections <= MAX_CONNECTIONS


def test_who_gets_no_connection_in_time_is_told_so(run: Run[Any]) -> None:
    over = threading.Event()

    async def main() -> None:
        transport = AsyncLeanTransport()
        long = [asyncio.create_task(transport.send(get(server), 20.0)) for _ in range(MAX_CONNECTIONS)]
        await asyncio.sleep(0)
        with pytest.raises(ConnectionLost, match="within"):
            await transport.send(get(server), 0.1)
        for task in long:
            task.cancel()
        await asyncio.wait(long)
        over.set()

    with peer(silence(over)) as server:
        run(main())


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
def test_the_answer_to_a_cancelled_call_is_nobody_elses(run: Run[Any], sent: bytes) -> None:
    """Nothing of the answer, or half of it, was there when the call was cancelled."""
    asked, cancelled = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as first:
                first.recv(1024)
                first.sendall(sent)
                asked.set()
                cancelled.wait(5)
                with suppress(OSError):
                    first.sendall(response(418, {}))
                with listener.accept()[0] as second:
                    second.recv(1024)
                    second.sendall(response(200, {}))

        async def main() -> None:
            transport = AsyncLeanTransport()
            request = Request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}", "/")
            call = asyncio.create_task(transport.send(request, 5.0))
            await asyncio.to_thread(asked.wait, 5)
            await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            cancelled.set()
            assert (await transport.send(request, 5.0)).status == 200
            await transport.close()

        server = threading.Thread(target=serve)
        server.start()
        run(main())
        server.join()


def test_cancelled_calls_leave_the_others_their_answers(run: Run[Any], server_url: str) -> None:
    async def main() -> None:
        async with AsyncClient(server_url) as client:
            for turn in range(20):
                calls = [asyncio.ensure_future(client.health()) for _ in range(8)]
                await asyncio.sleep(turn * 0.0002)
                for call in calls[::2]:
                    call.cancel()
                await asyncio.wait(calls)
                assert all(call.result() for call in calls[1::2])

    run(main())


@pytest.mark.parametrize("is_seen_by_the_loop", [True, False])
def test_a_connection_that_was_closed_while_idle_is_replaced(
    run: Run[Any], *, is_seen_by_the_loop: bool
) -> None:
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                with listener.accept()[0] as connection:
                    connection.recv(1024)
                    connection.sendall(response(200, {}))
                closed.set()

        async def main() -> None:
            transport = AsyncLeanTransport()
            for _ in range(2):
                request = Request("POST", f"http://127.0.0.1:{listener.getsockname()[1]}", "/")
                assert (await transport.send(request, 5.0)).status == 200
                closed.wait(5)
                if is_seen_by_the_loop:
                    await asyncio.sleep(0.05)
            await transport.close()

        server = threading.Thread(target=serve)
        server.start()
        run(main())
        server.join()


@pytest.mark.parametrize("is_seen_by_the_loop", [True, False])
def test_bytes_that_come_while_a_connection_is_idle_answer_nothing(
    run: Run[Any], *, is_seen_by_the_loop: bool
) -> None:
    answered, intruded = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

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

        async def main() -> None:
            transport = AsyncLeanTransport()
            request = Request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}", "/")
            assert (await transport.send(request, 5.0)).status == 200
            answered.set()
            intruded.wait(5)
            if is_seen_by_the_loop:
                await asyncio.sleep(0.05)
            assert (await transport.send(request, 5.0)).status == 200
            await transport.close()

        server = threading.Thread(target=serve)
        server.start()
        run(main())
        server.join()


def test_each_call_has_its_own_time_on_a_connection_that_is_shared(run: Run[Any]) -> None:
    over = threading.Event()

    def late(_: object) -> bytes:
        time.sleep(0.3)
        return response(200, {})

    async def main() -> None:
        transport = AsyncLeanTransport()
        await transport.send(get(server), 0.2)
        await transport.send(get(server), 5.0)  # longer than the time of the call before, and within its own
        began_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="within"):
            await transport.send(get(server), 0.1)  # shorter
        assert time.monotonic() - began_s < 1.0
        over.set()
        await transport.close()

    with peer(response(200, {}), late, silence(over)) as server:
        run(main())
        assert server.num_connections == 1


def test_several_silent_addresses_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, ["127.0.0.1", "127.0.0.1", "127.0.0.1"])
    with unanswering(1) as [(_, port)]:
        began_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="cannot connect"):
            asyncio.run(send_all(Peer(f"http://several.test:{port}"), 1, timeout_s=0.6))
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
        [reply] = asyncio.run(send_all(Peer(f"http://several.test:{port}"), 1, timeout_s=1.0))
        assert reply.status == 200
        server.join()


def test_nobody_there_is_a_lost_connection(run: Run[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectionLost, match="cannot connect"):
        run(send_all(Peer(url), 1))


def test_a_reason_to_refuse_a_body_is_read_though_it_was_not_all_sent(
    run: Run[Any], server_url: str, pool_name: str
) -> None:
    async def main() -> None:
        async with AsyncClient(server_url) as client:
            pool = await client.create_pool(pool_name, num_blocks=64, block_size=16)
            with pytest.raises(BodyTooLarge):
                await pool.lookup(16, block_hashes=[bytes(64)] * 600_000)

    run(main())


def test_a_closed_transport_sends_nothing_and_keeps_no_connection(run: Run[Any]) -> None:
    sent, closed = threading.Event(), threading.Event()
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket, *, waits: bool) -> None:
            with connection:
                connection.recv(1024)
                if waits:
                    sent.set()
                    closed.wait(5)
                connection.sendall(response(200, {}))
                seen.append(connection.recv(1024))

        def accept() -> None:
            idle, in_use = listener.accept()[0], listener.accept()[0]
            servers = [
                threading.Thread(target=serve, args=(connection,), kwargs={"waits": waits})
                for connection, waits in ((idle, False), (in_use, True))
            ]
            for server in servers:
                server.start()
            for server in servers:
                server.join()

        async def main() -> None:
            transport = AsyncLeanTransport()
            request = Request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}", "/")
            calls = [asyncio.create_task(transport.send(request, 5.0)) for _ in range(2)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(sent.wait, 5)
            await transport.close()
            with pytest.raises(RuntimeError, match="closed"):
                await transport.send(request, 5.0)
            closed.set()
            assert [reply.status for reply in await asyncio.gather(*calls)] == [200, 200]
            await asyncio.to_thread(server.join, 5)

        server = threading.Thread(target=accept)
        server.start()
        run(main())
    assert seen == [b"", b""]


ON_TWO_LOOPS = """
import asyncio, sys, uvloop
from blockyard.client import AsyncClient, NO_RETRY
client = AsyncClient(sys.argv[1], retries=NO_RETRY)
async def ask():
    assert await client.health()
async def ask_and_close():
    await ask()
    await client.close()
for work in (ask, ask, ask_and_close):
    with asyncio.Runner(loop_factory=getattr(sys.modules[sys.argv[2]], "new_event_loop")) as runner:
        runner.run(work())
"""


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_on_another_loop_connections_are_made_anew(server_url: str, loops: str) -> None:
    script = [
        sys.executable,
        "-c",
        ON_TWO_LOOPS,
        server_url,
        loops,
    ]  # which leaves connections to the collector
    assert subprocess.run(script, timeout=30, check=False).returncode == 0


FORKING = """
import asyncio, os, sys
from blockyard.client import AsyncClient
client = AsyncClient(sys.argv[1])
async def ask(times):
    for _ in range(times):
        assert await client.health()
async def main():
    await ask(3)
    child = os.fork()
    if not child:
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(None)
        try:
            asyncio.run(ask(20))
        except BaseException:
            os._exit(1)
        os._exit(0)
    await ask(20)
    status = await asyncio.to_thread(os.waitpid, child, 0)
    await ask(3)
    await client.close()
    return os.waitstatus_to_exitcode(status[1])
sys.exit(asyncio.run(main()))
"""


def test_a_forked_child_with_a_loop_of_its_own_opens_connections_of_its_own(server_url: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKING, server_url], timeout=30, check=False)
    assert done.returncode == 0
