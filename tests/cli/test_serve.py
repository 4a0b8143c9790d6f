import signal
import socket
from contextlib import closing

import click
import pytest

from blockyard.client import Client, LimitExceeded
from blockyard.server.commands.listening import listening_sockets
from cli.command_line import invoke
from server_process import first_line, require, run, running_server, start

BODY = b'{"num_blocks": 8, "block_size": 16}'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_url_once_it_takes_requests_and_ends_with_0_at_a_signal(number: int) -> None:
    with running_server() as server:
        with Client(server.url) as client:
            assert client.ready()
        assert server.stop(number) == 0
        assert require(server.process.stdout).read() == ""  # the ready line was all


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_answered_before_the_end(number: int) -> None:
    with running_server("--log-level", "error") as server:
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as connection:
            connection.sendall(
                b"PUT /v1/pools/late HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(BODY)}\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100")  # the route waits for the body
            server.process.send_signal(number)
            connection.sendall(BODY)
            assert connection.recv(10_000).startswith(b"HTTP/1.1 201")
        assert server.process.wait(30) == 0


def test_the_variables_of_the_developer_do_not_reach_a_server_of_a_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BLOCKYARD_PORT", "x")
    with running_server() as server:
        assert server.stop() == 0


def test_a_port_in_use_is_said_in_one_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: port {port} of 127.0.0.1 is in use: choose another with --port, or 0 for a free one\n"
    )


def test_an_address_of_another_machine_is_said_in_one_sentence() -> None:
    with pytest.raises(click.ClickException) as raised:
        listening_sockets("192.0.2.1", 0)
    assert raised.value.message == "cannot listen on 192.0.2.1: Cannot assign requested address"


def test_a_host_that_nobody_knows_is_said_in_one_sentence() -> None:
    with pytest.raises(click.ClickException, match=r"^--host nowhere\.invalid: "):
        listening_sockets("nowhere.invalid", 0)


@pytest.mark.parametrize(
    "arguments",
    [["--port", "65536"], ["--port", "x"], ["--max-pools", "0"], ["--log-level", "loud"], ["--prot", "1"]],
)
def test_a_bad_option_is_a_mistake_in_the_arguments(arguments: list[str]) -> None:
    done = invoke("serve", *arguments)
    assert done.exit_code == 2
    assert arguments[0] in done.stderr


def test_a_bad_variable_is_named() -> None:
    done = invoke("serve", BLOCKYARD_PORT="x")
    assert done.exit_code == 2
    assert "BLOCKYARD_PORT" in done.stderr


def test_a_variable_sets_an_option_and_an_option_goes_before_its_variable() -> None:
    variables = {"BLOCKYARD_MAX_POOL_BLOCKS": "7", "BLOCKYARD_PORT": "1", "BLOCKYARD_VOLATILE": "1"}
    with running_server(**variables) as server, Client(server.url) as client:  # it says --port 0
        client.create_pool("seven", num_blocks=7, block_size=16)
        with pytest.raises(LimitExceeded):
            client.create_pool("eight", num_blocks=8, block_size=16)


def test_it_imports_no_client_no_plotter_and_no_exporter_of_traces() -> None:
    with start("serve", "--port", "0", "--volatile", PYTHONPROFILEIMPORTTIME="1") as process:
        first_line(require(process.stdout))
        process.terminate()
        imported = {line.rpartition("|")[2].strip() for line in require(process.stderr)}
    assert "uvicorn" in imported
    assert imported.isdisjoint({"httpx", "plotext", "blockyard.client", "opentelemetry.sdk"})
