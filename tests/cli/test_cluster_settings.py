"""What a node is told: what does not go together, or cannot be meant, is refused before anything is begun."""

import re
from typing import Any

import pytest

from blockyard.server.settings import Settings
from cli.command_line import invoke, without
from server_process import run

NATS = "nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"cluster": NATS, "volatile": True}, "--volatile and --cluster exclude each other"),
        ({"cluster": "127.0.0.1:4222"}, "--cluster has URLs such as nats://host:4222"),
        ({"cluster": "http://127.0.0.1:4222"}, "--cluster has URLs"),
        ({"cluster": f"{NATS},"}, "--cluster has URLs"),
        ({"cluster": f"{NATS} {NATS}"}, "--cluster has URLs"),
        ({"cluster": "nats://127.0.0.1:4222/path"}, "--cluster has URLs"),
        ({"cluster": "nats://"}, "--cluster has URLs"),
        ({"proxy": True}, "--proxy goes with --cluster, which is not given"),
        ({"proxy_ca": "ca.pem"}, "--proxy-ca goes with --proxy, which is not given"),
        ({"cluster": NATS, "proxy_ca": "ca.pem"}, "--proxy-ca goes with --proxy, which is not given"),
        ({"advertise_url": "node-1:8484"}, "--advertise-url is http://host:port or https://host:port"),
        ({"advertise_url": "http://node-1:8484/"}, "--advertise-url is"),
        ({"advertise_url": "http://node-1:8484?a"}, "--advertise-url is"),
        ({"advertise_url": "http://me:secret@node-1:8484"}, "--advertise-url is"),
        ({"advertise_url": "ftp://node-1"}, "--advertise-url is"),
        ({"cluster_name": "a.b"}, "--cluster-name has 1 to 64 letters, digits, '_' and '-'"),
        ({"cluster_name": ""}, "--cluster-name has"),
        ({"cluster_name": "x" * 65}, "--cluster-name has"),
        ({"node_name": "a b"}, "--node-name has letters, digits"),
        ({"node_name": ".a"}, "--node-name has"),
        ({"node_name": "a*"}, "--node-name has"),
        ({"node_name": "a\n"}, "--node-name has"),
        ({"node_lease_ms": 199}, "node_lease_ms is 199, and at least 200"),
        ({"cluster_replicas": 6}, "cluster_replicas is 6, and at most 5"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(told: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Settings(**told)


@pytest.mark.parametrize(
    "told",
    [
        {"cluster": f"{NATS}, tls://b.example:4222", "proxy": True, "proxy_ca": "ca.pem"},
        {"cluster": NATS, "advertise_url": "https://[::1]:8484", "node_name": "node-1.example"},
        {"cluster": "nats://me:secret@b:4222", "cluster_name": "A_1-b", "cluster_replicas": 1},
    ],
)
def test_what_can_be_meant_is_taken(told: dict[str, Any]) -> None:
    settings = Settings(**told)
    assert {name: getattr(settings, name) for name in told} == told


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--cluster", NATS, "--volatile"), "--volatile and --cluster exclude each other"),
        (("--proxy",), "--proxy goes with --cluster, which is not given"),
        (("--cluster", "here"), "--cluster has URLs such as nats://host:4222"),
    ],
)
def test_the_command_line_says_why_it_does_not_start(options: tuple[str, ...], sentence: str) -> None:
    done = invoke("serve", "--port", "0", *options)
    assert done.exit_code != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--proxy-ca", "--cluster-ca", "--cluster-credentials"])
def test_a_file_that_is_missing_is_told_of(option: str) -> None:
    done = run("serve", "--port", "0", "--cluster", NATS, "--proxy", option, "/no/such/file")
    assert done.returncode != 0
    assert f"{option}" in done.stderr
    assert "No such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_without_the_client_of_nats_says_what_brings_it() -> None:
    done = without("nats", "serve", "--port", "0", "--cluster", NATS)
    assert done.returncode != 0
    assert "pip install 'blockyard[cluster]'" in done.stderr
    assert "Traceback" not in done.stderr
