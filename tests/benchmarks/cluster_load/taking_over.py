"""The standby of a large pool, whose owner is killed."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from benchmarks.cluster_load.two_nodes import TwoNodes
from cluster.node_process import NodeProcess
from cluster.sending import ClusterSender

PROMPT_BLOCKS, BLOCK_SIZE = 1_000, 16
TTL_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Once: by the new owner's log, and as a caller saw it."""

    after_lease_ms: float
    after_kill_ms: float


def take_overs(cluster: TwoNodes, num_blocks: int, count: int) -> list[TakenOver]:
    """Kill the owner of a pool of ``num_blocks`` so often; it comes back each time, and owns it again."""
    owner, other = cluster.nodes
    pool = cluster.pool_of(owner, "large")
    sender = ClusterSender([owner.url])
    make_full(sender, pool, num_blocks)
    sender.close()
    found = []
    for _ in range(count):
        cluster.wait_until_followed(pool, owner)
        found.append(taken_over(pool, owner, other))
        owner.begin()
        owner.wait_until_ready()
    return found


def taken_over(pool: str, owner: NodeProcess, other: NodeProcess) -> TakenOver:
    sender = ClusterSender([other.url])
    num_lines = len(other.log)
    killed_s = time.monotonic()
    owner.kill()
    status, told = sender.get(f"/v1/pools/{pool}/stats")
    answered_s = time.monotonic()
    assert status == 200, told
    sender.close()
    said = other.log[num_lines:]
    dead = _first(said, event="a node is silent, and found dead", node=owner.name)
    owned = _first(said, event="this node owns a pool", pool=pool)
    return TakenOver(
        after_lease_ms=(_at(owned) - _at(dead)).total_seconds() * 1e3,
        after_kill_ms=(answered_s - killed_s) * 1e3,
    )


def make_full(sender: ClusterSender, pool: str, num_blocks: int) -> None:
    """A pool whose every block caches a hash."""
    path = f"/v1/pools/{pool}"
    _done(sender.put(path, {"num_blocks": num_blocks, "block_size": BLOCK_SIZE}))
    lease = _done(sender.post(f"{path}/leases", {"holder": "benchmark", "ttl_ms": TTL_MS}))["lease_id"]
    for first in range(1, num_blocks, PROMPT_BLOCKS):
        count = min(PROMPT_BLOCKS, num_blocks - first)
        named = {"lease_id": lease, "sequence_id": f"prompt-{first}"}
        hashes = [f"{first + number:064x}" for number in range(count)]
        tokens = count * BLOCK_SIZE
        _done(sender.post(f"{path}/allocate", {**named, "num_tokens": tokens, "block_hashes": hashes}))
        _done(sender.post(f"{path}/commit", {**named, "num_computed_tokens": tokens}))
        _done(sender.post(f"{path}/free", {"lease_id": lease, "sequence_ids": [named["sequence_id"]]}))


def _done(answer: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    status, told = answer
    assert status < 300, told
    return told


def _first(said: list[dict[str, Any]], **fields: str) -> dict[str, Any]:
    return next(line for line in said if fields.items() <= line.items())


def _at(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])
