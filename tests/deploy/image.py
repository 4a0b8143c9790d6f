"""What the image of Dockerfile runs, and a node that runs it here with what a deployment tells it."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

from access.token_files import add_token
from blockyard.server.settings import Settings
from blockyard.server.trial.nats_servers import NatsServers
from deploy.programs import ROOT
from server_process import READY, TIMEOUT_S, ServerProcess, first_line, require, start

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PREFIX = "BLOCKYARD_"
NAMES = {f"{PREFIX}{known.name.upper()}" for known in fields(Settings)}
"""Of all variables that a server reads."""


def image_command() -> list[str]:
    """The words after ``blockyard``."""
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    words: list[str] = json.loads(command)
    return words


def image_variables() -> dict[str, str]:
    """Those of a server that the image sets."""
    return dict(re.findall(rf"\b({PREFIX}\w+)=(\S+)", DOCKERFILE.partition("\nFROM")[2]))


def image_user() -> int:
    """Whom it runs as."""
    (user,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    return int(user)


def url_of(told: str, scheme: str) -> tuple[str, int]:
    """Host and port of a URL that has nothing else."""
    url = urlsplit(told)
    assert (url.scheme, url.path, url.query) == (scheme, "", "")
    assert url.hostname
    assert url.port
    return url.hostname, url.port


def nats_hosts(variables: Mapping[str, str]) -> list[str]:
    """Of the servers that a node is told of, all at NATS's own port."""
    found = [url_of(each, "nats") for each in variables["BLOCKYARD_CLUSTER"].split(",")]
    assert {port for _, port in found} == {4222}
    return [host for host, _ in found]


@contextmanager
def node_of(variables: Mapping[str, str], folder: Path) -> Iterator[tuple[ServerProcess, str]]:
    """A node as a container with ``variables`` has it, and a token of an operator.

    What is elsewhere here is replaced, and nothing else: NATS, of which there is one server, the token file,
    the address, the place for data, and how soon a machine that has much to do is held for lost.
    """
    tokens = folder / "tokens.json"
    token = add_token(tokens, "admin")
    with NatsServers(folder / "nats", num_servers=1) as servers:
        here = {
            "BLOCKYARD_CLUSTER": servers.urls,
            "BLOCKYARD_CLUSTER_REPLICAS": "1",
            "BLOCKYARD_NODE_LEASE_MS": "20000",
            "BLOCKYARD_TOKEN_FILE": str(tokens),
        }
        told = {**image_variables(), **variables, **here}
        data = folder / "data"
        told["BLOCKYARD_DATA_DIR"] = str(data)
        options = [*image_command(), "--host", "127.0.0.1", "--port", "0"]
        with start(*options, stderr=None, **told) as process:
            try:
                line = first_line(require(process.stdout))
                assert line.startswith(READY), f"the node did not get ready: {line!r}"
                yield ServerProcess(line.removeprefix(READY).strip(), process), token
                process.terminate()
                assert process.wait(TIMEOUT_S) == 0
                assert not data.exists(), "a node writes to a disk, which it cannot in its container"
            finally:
                process.kill()
