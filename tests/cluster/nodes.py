"""Real nodes over one real NATS server, and calls to them that follow nothing by themselves."""

import http.client
import itertools
import json
import signal
import subprocess
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from nats.js.errors import NotFoundError

from access.token_files import bearing
from blockyard.client import Client, ClusterReport
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.names import Names
from blockyard.server.cluster.rendezvous import candidates
from blockyard.server.journal.interface import PoolKey
from blockyard.server.trial.nats_servers import NatsServers
from cluster.in_nats import connected
from server_process import READY, ServerProcess, first_line, require, start
from waiting import wait_for

TIMEOUT_S = 30
TWO = ("node-1", "node-2")
NAMES = Names("blockyard")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a node says."""

    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.data)

    @property
    def ownership(self) -> int | None:
        """Under which number the node owns the pool that it tells of."""
        told = self.headers["Blockyard-Ownership"]
        return None if told is None else int(told)

    @property
    def is_moving(self) -> bool:
        """Whether nobody answers for the pool now."""
        return self.status == 503 and self.body["code"] == "not_ready"


def ask(url: str, method: str, target: str, body: Any = None, **headers: str) -> Reply:
    """One call, whose redirect is not followed; ``body`` is sent as it is if it is bytes, else as JSON."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        named = {"Content-Type": JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, target, data, named)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def follow(url: str, method: str, target: str, body: Any = None, **headers: str) -> Reply:
    """One call as a good client makes it: sent where it belongs, repeated while the pool is on its way."""
    reply = ask(url, method, target, body, **headers)

    def is_told() -> bool:
        nonlocal reply
        if reply.status == 307:
            to = urlsplit(reply.headers["Location"])
            try:
                reply = ask(f"{to.scheme}://{to.netloc}", method, target, body, **headers)
            except (http.client.HTTPException, ConnectionError):  # it is gone, or about to go
                reply = ask(url, method, target, body, **headers)
        elif reply.is_moving:
            reply = ask(url, method, target, body, **headers)
        return reply.status != 307 and not reply.is_moving

    wait_for(is_told)
    return reply


@dataclass(slots=True)
class Nodes:
    """Nodes by their names.

    Attributes:
        nats: Where they meet.
        options: What each is told beside its name.
        token: What they are asked for reports with.
        processes: Those that were started last.
    """

    nats: NatsServers
    options: tuple[str, ...]
    token: str | None = None
    processes: dict[str, ServerProcess] = field(default_factory=dict)

    def begin(self, name: str, *options: str, stderr: int | None = None) -> subprocess.Popen[str]:
        """The process of a node, which gets ready some time."""
        named = ("--cluster", self.nats.urls, "--cluster-replicas", "1", "--node-name", name)
        port = str(self.processes[name].port) if name in self.processes else "0"
        more = ("--port", port, "--log-level", "warning", *self.options, *options)
        return start("serve", *named, *more, stderr=stderr)

    def start(self, *names: str) -> None:
        """Start nodes, until they are ready and know of one another. One that comes back has its URL."""
        begun = {name: self.begin(name) for name in names}
        for name, process in begun.items():
            if name in self.processes:
                require(self.processes[name].process.stdout).close()
            self.processes[name] = ServerProcess("", process)
        for name, process in begun.items():
            line = first_line(require(process.stdout))
            assert line.startswith(READY), f"the node did not get ready: {line!r}"
            self.processes[name] = ServerProcess(line.removeprefix(READY).strip(), process)
        for name in names:
            wait_for(lambda name=name: {*names} <= self.live(name))  # type: ignore[misc]

    def kill(self, *names: str) -> None:
        """At once, and wait until they are gone."""
        for name in names:
            self.processes[name].process.kill()
        for name in names:
            self.processes[name].process.wait()

    def url(self, name: str) -> str:
        return self.processes[name].url

    def other(self, name: str) -> str:
        """The other of two."""
        [other] = [each for each in self.processes if each != name]
        return other

    def report(self, name: str) -> ClusterReport:
        """The cluster, as the node of this name knows it."""
        with Client(self.url(name), token=self.token) as client:
            return client.cluster()

    def live(self, name: str) -> set[str]:
        """The nodes that the one of this name takes for live."""
        return {each.node for each in self.report(name).nodes if each.is_live}

    def owner(self, pool: str, *, by: str) -> str | None:
        """Who owns the pool, by what a node knows; None also where there is no such pool."""
        return next((each.node for each in self.report(by).pools if each.pool == pool), None)

    def streams(self) -> dict[str, int]:
        """The streams of pools that NATS has, by their keys: how many messages each has."""
        state = self.nats.state(0, "/jsz?streams=true")
        assert state is not None
        found = (stream for account in state["account_details"] for stream in account["stream_detail"])
        front = NAMES.stream(PoolKey(0)).rpartition("-")[0]
        return {
            stream["name"].rpartition("-")[2]: stream["state"]["messages"]
            for stream in found
            if stream["name"].startswith(front)
        }

    def snapshots(self, keys: Container[str]) -> list[str]:
        """The names of the snapshots that NATS has of the streams of ``keys``."""
        found: list[str] = []

        async def work(connection: Connection) -> None:
            store = await connection.jetstream.object_store(NAMES.snapshots)
            with suppress(NotFoundError):  # there is none
                listed = await store.list(ignore_deletes=True)
                found.extend(str(info.name) for info in listed if not info.deleted)

        connected(self.nats, work)
        return [name for name in found if name.partition(".")[0] in keys]

    def settle(self, pool: str, owner: str) -> None:
        """Until ``owner`` owns the pool, and the other node knows it and has it warm."""

        def is_settled() -> bool:
            other = self.other(owner)
            [standby] = [each for each in self.report(other).pools if each.pool == pool]
            is_warm = standby.role == "standby" and standby.lag == 0
            return is_warm and standby.node == owner and self.owner(pool, by=owner) == owner

        wait_for(is_settled)


@contextmanager
def running_nodes(*options: str, names: Sequence[str] = TWO, token: str | None = None) -> Iterator[Nodes]:
    """Nodes that are ready, and a NATS server of their own; in the end they are killed."""
    with TemporaryDirectory(prefix="blockyard-") as folder, NatsServers(Path(folder), num_servers=1) as nats:
        nodes = Nodes(nats, options, token)
        try:
            nodes.start(*names)
            yield nodes
        finally:
            for each in nodes.processes.values():
                each.process.send_signal(signal.SIGCONT)
                each.process.kill()
                with each.process:
                    pass


_numbers = itertools.count()


def pool_of(first: str, names: Sequence[str] = TWO) -> str:
    """A new name of a pool that ``first`` is to own while all of ``names`` are there."""
    made = (f"pool-{number}" for number in _numbers)
    return next(name for name in made if candidates(name, list(names))[0] == first)


def make_pool(nodes: Nodes, pool: str, body: Any) -> str:
    """A pool, made by whoever is to own it; its path."""
    path = f"/v1/pools/{pool}"
    reply = follow(nodes.url(next(iter(nodes.processes))), "PUT", path, body)
    assert reply.status == 201, reply.data
    return path


def make_lease(url: str, path: str, *, ttl_ms: int = 600_000, token: str | None = None) -> str:
    """A lease of the pool at ``path``."""
    reply = follow(url, "POST", f"{path}/leases", {"holder": "test", "ttl_ms": ttl_ms}, **bearing(token))
    assert reply.status == 201, reply.data
    return str(reply.body["lease_id"])
