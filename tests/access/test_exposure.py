"""Starts that are refused, before anything is opened, with a sentence that says what to do."""

import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from access.certificates import Certificates, make_certificates
from access.token_files import add_token, bearing
from blockyard.server.access.exposure import is_loopback
from cli.command_line import invoke
from server_process import environment, first_line, logging_server, require, running_server, start

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is to be refused


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("localhost", True),
        ("::1", True),
        (EVERYWHERE, False),
        ("::", False),
        ("192.0.2.1", False),
        ("", True),  # no address at all
    ],
)
def test_loopback_is_what_no_other_machine_reaches(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own


@pytest.mark.parametrize("host", [EVERYWHERE, "::"])
def test_an_address_that_others_reach_is_refused_without_tokens(tmp_path: Path, host: str) -> None:
    data_dir = tmp_path / "data"
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:  # nothing is opened: else that is said
        port = taken.getsockname()[1]
        done = invoke("serve", "--host", host, "--port", str(port), "--data-dir", data_dir)
    assert done.exit_code == 2
    assert f"Error: whoever reaches {host} could use and delete every pool: give --token-file" in done.stderr
    assert "--tls-client-ca; or say --insecure" in done.stderr
    assert not data_dir.exists()


@pytest.mark.parametrize("way", ["tokens", "certificates", "insecure"])
def test_it_is_served_where_callers_are_known_or_it_is_wanted(
    tmp_path: Path, made: Certificates, way: str
) -> None:
    file = tmp_path / "tokens.json"
    add_token(file, "admin")
    tls = ("--tls-cert", str(made.server), "--tls-key", str(made.server))
    options = {
        "tokens": ("--token-file", str(file)),
        "certificates": (*tls, "--tls-client-ca", str(made.authority)),
        "insecure": ("--insecure",),
    }
    serve = ("serve", "--host", EVERYWHERE, "--port", "0", "--volatile")
    with start(*serve, *options[way], stderr=None) as process:
        line = first_line(require(process.stdout))
        process.terminate()
    assert line.startswith("blockyard is ready at http")


def test_certificates_alone_say_nothing_of_callers(made: Certificates) -> None:
    done = invoke("serve", "--host", EVERYWHERE, "--tls-cert", made.server, "--tls-key", made.server)
    assert done.exit_code == 2
    assert "give --token-file" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tls-cert", "c"), "--tls-cert and --tls-key go together"),
        (("--tls-key", "k"), "--tls-cert and --tls-key go together"),
        (("--tls-client-ca", "a"), "--tls-client-ca goes with --tls-cert and --tls-key"),
    ],
)
def test_options_that_do_not_go_alone_are_refused(options: tuple[str, str], said: str) -> None:
    done = invoke("serve", *options)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_file_that_cannot_be_used_is_said_before_a_data_directory_is_made(
    tmp_path: Path, made: Certificates
) -> None:
    text = tmp_path / "text"
    text.write_text("hello")
    good = {"--tls-cert": made.server, "--tls-key": made.server, "--tls-client-ca": made.authority}
    cases = {
        "--token-file": f"the token file {text} is not valid: ",
        "--tls-cert": f"--tls-cert {text} and --tls-key {made.server} are no certificate and its key: ",
        "--tls-key": f"--tls-cert {made.server} and --tls-key {text} are no certificate and its key: ",
        "--tls-client-ca": f"--tls-client-ca {text} has no certificate in it: ",
    }
    for option, said in cases.items():
        for path in (text, tmp_path / "missing"):
            options = {**good, option: path, "--data-dir": tmp_path / "data"}
            done = invoke("serve", *(part for pair in options.items() for part in pair))
            assert done.exit_code == 1
            assert done.stderr.count("\n") == 1
            missing = f"{path} cannot be read: No such file or directory\n"
            assert done.stderr.startswith(f"Error: {said}") if path == text else done.stderr.endswith(missing)
    assert not (tmp_path / "data").exists()


def test_a_key_of_another_certificate_is_refused(made: Certificates) -> None:
    done = invoke("serve", "--tls-cert", made.server, "--tls-key", made.client)
    assert done.exit_code == 1
    assert "are no certificate and its key" in done.stderr


def test_an_encrypted_key_is_refused_and_not_asked_a_password_for(tmp_path: Path, made: Certificates) -> None:
    key = serialization.load_pem_private_key(made.server.read_bytes(), None)
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    done = invoke("serve", "--tls-cert", made.server, "--tls-key", encrypted)
    assert done.exit_code == 1
    assert "--tls-key is encrypted" in done.stderr


def test_the_log_warns_of_tokens_that_others_may_come_to_know(tmp_path: Path) -> None:
    file, log = tmp_path / "tokens.json", tmp_path / "log"
    token = add_token(file, "read")
    for mode, host, warnings in ((0o600, "127.0.0.1", 0), (0o644, "127.0.0.1", 1), (0o640, EVERYWHERE, 2)):
        file.chmod(mode)
        with (
            log.open("wb") as stderr,
            logging_server(stderr.fileno(), "--token-file", str(file), "--host", host) as server,
        ):
            assert server.call("GET", "/v1/pools", **bearing(token))[0] == 200
        assert log.read_text().count('"level": "warning"') == warnings


def test_a_containers_probe_finds_a_server_ready_over_tls_too(made: Certificates) -> None:
    tls = (
        "--tls-cert",
        str(made.server),
        "--tls-key",
        str(made.server),
        "--tls-client-ca",
        str(made.authority),
    )
    known = {"BLOCKYARD_TLS_CERT": str(made.server), "BLOCKYARD_CLIENT_CERT": str(made.client)}
    for options, variables in (((), {}), (tls, known)):
        with running_server(*options) as server:
            assert probe(BLOCKYARD_PORT=str(server.port), **variables) == 0
        assert probe(BLOCKYARD_PORT=str(server.port), **variables) == 1


def probe(**variables: str) -> int:
    """The exit status of the image's health check."""
    command = [sys.executable, "-m", "blockyard.server.commands.probe"]
    done = subprocess.run(command, env=environment(variables), capture_output=True, timeout=60, check=False)
    return done.returncode
