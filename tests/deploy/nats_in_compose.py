"""NATS servers with the configuration of deploy/, on loopback and at ports that are free."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockyard.server.trial.nats_binary import find_nats_server
from blockyard.server.trial.places import NatsPlace, loopback_places
from deploy.programs import DEPLOY
from waiting import wait_for

NATS_CONFIG = DEPLOY / "nats/nats-server.conf"


def told_by(text: str) -> dict[str, str]:
    """The plain values of a configuration, by their names."""
    return dict(re.findall(r"^ *(\w+): ([^\s\"\[{]+)", text, re.MULTILINE))


@dataclass(frozen=True, slots=True)
class ComposedNats:
    """One that runs."""

    name: str
    place: NatsPlace
    process: subprocess.Popen[bytes]

    def ask(self, path: str) -> dict[str, Any]:
        """What its monitor answers; empty if it does not."""
        try:
            with urllib.request.urlopen(self.place.monitor + path, timeout=2) as reply:
                found: dict[str, Any] = json.loads(reply.read())
        except (OSError, urllib.error.URLError):
            return {}
        return found

    def leader(self) -> str | None:
        """JetStream's, as far as it knows."""
        name: str | None = self.ask("/jsz").get("meta_cluster", {}).get("leader")
        return name


@contextmanager
def running_nats(folder: Path, names: Sequence[str]) -> Iterator[list[ComposedNats]]:
    """Until they have a leader; what is replaced in the configuration are addresses and the store."""
    places = dict(zip(names, loopback_places(len(names)), strict=True))
    servers = []
    with ExitStack() as stack:
        for name, place in places.items():
            path = folder / f"{name}.conf"
            path.write_text(_here(NATS_CONFIG.read_text(), place, places, folder / name))
            process = subprocess.Popen(
                [find_nats_server(), "--config", path],
                env={**os.environ, "NATS_NAME": name},
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            servers.append(ComposedNats(name, place, process))
        wait_for(lambda: all(server.leader() for server in servers), timeout_s=60)
        yield servers


def _here(text: str, place: NatsPlace, places: Mapping[str, NatsPlace], store: Path) -> str:
    """The configuration of the server at ``place``."""
    here = {
        "0.0.0.0:4222": f"{place.host}:{place.client_port}",
        "0.0.0.0:6222": f"{place.host}:{place.route_port}",
        "0.0.0.0:8222": f"{place.host}:{place.monitor_port}",
        "store_dir: /data": f"store_dir: {store}",
        **{f"nats://{name}:6222": other.route for name, other in places.items()},
    }
    for there, replacement in here.items():
        assert there in text
        text = text.replace(there, replacement)
    return text
