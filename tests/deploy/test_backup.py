"""What the runbook says of backups: streams of a cluster without nodes, restored into empty servers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.aio.client import Client

from blockyard.server.trial.nats_servers import NatsServers
from deploy.stream_backup import StreamBackup, back_up, restore
from server_process import ServerProcess, running_server

T = TypeVar("T")
POOL = "/v1/pools/kept"
LEASE_MS = "20000"
"""Long: a machine that has much to do is no node that was lost."""


def connected(servers: NatsServers, work: Callable[[Client], Awaitable[T]]) -> T:
    async def call() -> T:
        client = await nats.connect(servers.urls.split(","))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(call())


@contextmanager
def running_node(servers: NatsServers, *options: str) -> Iterator[ServerProcess]:
    told = ("--cluster", servers.urls, "--cluster-replicas", "1", "--node-lease-ms", LEASE_MS)
    with running_server("--log-level", "warning", *told, *options) as node:
        yield node


def call(node: ServerProcess, method: str, path: str, body: Any = None) -> Any:
    status, answer = node.call(method, path, body)
    assert status in (200, 201), answer
    return answer


def hold_blocks(node: ServerProcess) -> dict[str, Any]:
    """A pool with a sequence and more commands than a snapshot is taken after; returns its figures."""
    call(node, "PUT", POOL, {"num_blocks": 40, "block_size": 4})
    lease = call(node, "POST", f"{POOL}/leases", {"holder": "me", "ttl_ms": 3_600_000})["lease_id"]
    for number in range(40):
        told = {"lease_id": lease, "sequence_id": f"s{number}", "num_tokens": 9}
        call(node, "POST", f"{POOL}/allocate", told)
        if number:
            call(node, "POST", f"{POOL}/free", {"lease_id": lease, "sequence_ids": [f"s{number}"]})
    return figures(node)


def figures(node: ServerProcess) -> dict[str, Any]:
    """All that the pool tells of itself; its audit agrees."""
    assert call(node, "GET", f"{POOL}/audit")["ok"]
    stats: dict[str, Any] = call(node, "GET", f"{POOL}/stats")
    return stats


def test_a_backup_restored_into_empty_servers_has_pools_with_their_sequences(tmp_path: Path) -> None:
    with NatsServers(tmp_path / "before", num_servers=1) as servers:
        with running_node(servers, "--snapshot-commands", "20") as node:
            before = hold_blocks(node)
        backup: dict[str, StreamBackup] = connected(servers, back_up)
    kinds = {name.rstrip("0123456789abcdef").rstrip("-") for name in backup}
    assert kinds == {"blockyard-pool", "KV_blockyard-pools", "KV_blockyard-nodes", "OBJ_blockyard-snapshots"}
    with NatsServers(tmp_path / "after", num_servers=1) as servers:
        connected(servers, lambda client: restore(client, backup))
        with running_node(servers) as node:
            assert figures(node) == before
            assert before["num_held_blocks"] == 3


def test_names_of_streams_are_those_that_the_runbook_tells() -> None:
    runbook = (Path(__file__).resolve().parents[2] / "deploy/RUNBOOK.md").read_text()
    for name in ("blockyard-pool-*", "KV_blockyard-pools", "KV_blockyard-nodes", "OBJ_blockyard-snapshots"):
        assert f"`{name}`" in runbook
