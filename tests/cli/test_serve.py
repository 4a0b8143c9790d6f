import signal
import socket
from contextlib import closing
from dataclasses import fields
from urllib.parse import urlsplit

import pytest

from blockyard.client import Client, InvalidRequest
from blockyard.server.settings import Settings
from cli.support import require, run, serving, start

BODY = b'{"num_blocks": 8, "block_size": 16}'


def test_it_takes_requests_once_it_has_printed_its_url() -> None:
    with serving() as server, Client(server.url) as client:
        assert client.ready()


def test_the_ready_line_is_all_of_standard_output() -> None:
    with serving() as server:
        server.stop()
        assert require(server.process.stdout).read() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(number: int) -> None:
    with serving() as server:
        assert server.stop(number) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_answered_before_the_end(number: int) -> None:
    with serving("--port", "0", "--log-level", "error") as server:
        address = urlsplit(server.url)
        with closing(socket.create_connection((address.hostname, address.port))) as connection:
            connection.sendall(
                b"PUT /v1/pools/late HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(BODY)}\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100")  # the route waits for the body
            server.process.send_signal(number)
            connection.sendall(BODY)
            assert connection.recv(10_000).startswith(b"HTTP/1.1 201")
        assert server.process.wait(30) == 0


def test_a_port_in_use_is_said_in_one_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: port {port} of 127.0.0.1 is in use: choose another with --port, or 0 for a free one\n"
    )


def test_an_address_of_another_machine_is_said_in_one_sentence() -> None:
    done = run("serve", "--host", "192.0.2.1", "--port", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: cannot listen on 192.0.2.1: ")


@pytest.mark.parametrize(
    "arguments",
    [["--port", "65536"], ["--port", "x"], ["--max-pools", "0"], ["--log-level", "loud"], ["--prot", "1"]],
)
def test_a_bad_option_is_a_mistake_in_the_arguments(arguments: list[str]) -> None:
    done = run("serve", *arguments)
    assert done.returncode == 2
    assert arguments[0] in done.stderr


def test_a_bad_variable_is_named() -> None:
    done = run("serve", BLOCKYARD_PORT="x")
    assert done.returncode == 2
    assert "BLOCKYARD_PORT" in done.stderr


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_every_setting_is_an_option_and_a_variable_with_a_sentence(name: str) -> None:
    _, _, options = run("serve", "--help").stdout.partition("Options:")
    _, _, entry = " ".join(options.split()).partition(f"--{name.replace('_', '-')} ")
    sentence, _, rest = entry.partition("[env var: ")
    assert rest.startswith(f"BLOCKYARD_{name.upper()}")
    assert ". " in sentence


def test_a_variable_sets_an_option() -> None:
    with serving("--port", "0", BLOCKYARD_MAX_POOL_BLOCKS="7") as server, Client(server.url) as client:
        client.create_pool("seven", num_blocks=7, block_size=16)
        with pytest.raises(InvalidRequest):
            client.create_pool("eight", num_blocks=8, block_size=16)


def test_an_option_goes_before_its_variable() -> None:
    with serving("--port", "0", BLOCKYARD_PORT="1") as server:
        assert urlsplit(server.url).port != 1


def test_volatile_may_be_said() -> None:
    with serving("--port", "0", "--volatile") as server:
        assert server.stop() == 0


def test_it_imports_neither_a_client_nor_a_plotter() -> None:
    with start("serve", "--port", "0", PYTHONPROFILEIMPORTTIME="1") as process:
        require(process.stdout).readline()
        process.terminate()
        imported = {line.rpartition("|")[2].strip() for line in require(process.stderr)}
    assert "uvicorn" in imported
    assert imported.isdisjoint({"httpx", "plotext", "blockyard.client"})
