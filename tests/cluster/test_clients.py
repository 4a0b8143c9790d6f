"""Clients of two real nodes over a real NATS server: they find pools, and outlive an owner."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from blockyard.client import AsyncClient, Client
from cluster.nodes import running_nodes
from server_process import ServerProcess
from waiting import wait_for

LEASE_MS = 1_000
NUM_POOLS = 8
SIZES: dict[str, Any] = {"num_blocks": 1_000, "block_size": 16}
KINDS = ["lean", "httpx"]


@contextmanager
def two_nodes() -> Iterator[list[ServerProcess]]:
    with running_nodes("--node-lease-ms", str(LEASE_MS)) as nodes:
        yield list(nodes.processes.values())


def owners(url: str) -> dict[str, str | None]:
    """The URL of each pool's owner, as a node knows it."""
    with Client(url) as client:
        return {pool.pool: pool.url for pool in client.cluster().pools}


@pytest.mark.parametrize("kind", KINDS)
def test_pools_are_found_at_either_node_whichever_is_asked(kind: Literal["lean", "httpx"]) -> None:
    async def held(url: str, name: str) -> int:
        async with AsyncClient(url, transport=kind) as client, client.pool(name).lease("me") as lease:
            await lease.allocate("s", 100)
            return (await client.pool(name).stats()).num_held_blocks

    with two_nodes() as nodes:
        names = [f"pool-{number}" for number in range(NUM_POOLS)]
        with Client(nodes[0].url, transport=kind) as client:
            for name in names:
                client.create_pool(name, **SIZES)
                with client.pool(name).lease("me") as lease:
                    assert len(lease.allocate("s", 100).block_ids[0]) == 7
        assert set(owners(nodes[0].url).values()) == {nodes[0].url, nodes[1].url}
        for url, name in itertools.product([each.url for each in nodes], names):
            assert asyncio.run(held(url, name)) == 7


def kill_owner(nodes: list[ServerProcess], pool: str) -> ServerProcess:
    """Kill the node that owns ``pool``; the other one."""
    owner = owners(nodes[0].url)[pool]
    [killed] = [each for each in nodes if each.url == owner]
    [left] = [each for each in nodes if each.url != owner]
    killed.process.kill()
    return left


def test_no_call_fails_where_a_pools_owner_is_killed_and_none_is_done_twice() -> None:
    with two_nodes() as nodes, Client([each.url for each in nodes]) as client:
        pool = client.create_pool("pool", **SIZES)
        with pool.lease("me", ttl_ms=60_000) as lease:
            held = [lease.allocate_blocks(1).block_ids[0] for _ in range(20)]
            left = kill_owner(nodes, "pool")
            held += [lease.allocate_blocks(1).block_ids[0] for _ in range(20)]
            assert len(set(held)) == 40
            stats = pool.stats()
            assert (stats.num_held_blocks, stats.num_leases) == (40, 1)
            assert pool.audit().ok
        wait_for(lambda: owners(left.url) == {"pool": left.url})


def test_a_pool_made_anew_by_others_is_believed_though_the_old_one_had_more_owners() -> None:
    """Owners' numbers rise over all pools of one name."""
    with two_nodes() as nodes, Client([each.url for each in nodes]) as client:
        pool = client.create_pool("pool", **SIZES)
        left = kill_owner(nodes, "pool")
        assert pool.stats().num_blocks == SIZES["num_blocks"]
        with Client(left.url) as other:
            other.pool("pool").delete()
            other.create_pool("pool", num_blocks=500, block_size=16)
        assert pool.stats().num_blocks == 500
