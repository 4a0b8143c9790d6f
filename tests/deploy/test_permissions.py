"""What a node may do at NATS where NATS is shared: as README says, and it needs no more."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from blockyard.server.trial.nats_binary import find_nats_server
from blockyard.server.trial.places import loopback_places
from deploy.nats_in_compose import ComposedNats
from deploy.programs import DEPLOY
from server_process import running_server
from waiting import wait_for

USER, PASSWORD = "node", "secret"


def subjects() -> list[str]:
    """Those that README says a node's user needs."""
    (passage,) = re.findall(
        r"with\s+the\s+subjects (.*?), and nobody", (DEPLOY / "README.md").read_text(), re.DOTALL
    )
    found: list[str] = re.findall(r"`(\S+)`", passage)
    return found


@contextmanager
def shared_nats(folder: Path, allowed: Sequence[str]) -> Iterator[str]:
    """The URL of a server whose one user may do what ``allowed`` says."""
    (place,) = loopback_places(1)
    user = {
        "user": USER,
        "password": PASSWORD,
        "permissions": {"publish": list(allowed), "subscribe": list(allowed)},
    }
    told = {
        "listen": f"{place.host}:{place.client_port}",
        "http": f"{place.host}:{place.monitor_port}",
        "max_payload": 2**23,
        "jetstream": {"store_dir": str(folder / "store")},
        "authorization": {"users": [user]},
    }
    path, log = folder / "nats.conf", folder / "nats.log"
    path.write_text(json.dumps(told))
    with subprocess.Popen([find_nats_server(), "--config", path, "--log", log]) as process:
        try:
            wait_for(lambda: ComposedNats("shared", place, process).ask("/healthz").get("status") == "ok")
            yield place.url.replace("//", f"//{USER}:{PASSWORD}@")
        finally:
            process.kill()
    said = log.read_text()
    assert "Permissions Violation" not in said, said


def test_a_node_does_with_the_subjects_that_readme_names(tmp_path: Path) -> None:
    assert len(subjects()) == 5
    with shared_nats(tmp_path, subjects()) as url:
        options = ["--cluster", url, "--cluster-replicas", "1", "--node-lease-ms", "20000"]
        options += ["--snapshot-commands", "5"]
        with running_server("--log-level", "warning", *options) as node:
            assert node.call("PUT", "/v1/pools/pool", {"num_blocks": 10, "block_size": 4})[0] == 201
            for _ in range(20):
                told = {"holder": "me", "ttl_ms": 60_000}
                assert node.call("POST", "/v1/pools/pool/leases", told)[0] == 201
        with running_server("--log-level", "warning", *options) as node:
            wait_for(lambda: node.call("GET", "/v1/pools/pool/stats")[0] == 200)
            assert node.call("GET", "/v1/pools/pool/stats")[1]["num_leases"] == 20
