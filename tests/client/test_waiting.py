"""Calls that wait for blocks at a real server, and are answered when there are some."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from blockyard.client import (
    NO_RETRY,
    AsyncClient,
    BlocksAllocated,
    Client,
    InsufficientBlocks,
    Lease,
    LimitExceeded,
    Pool,
    RetryPolicy,
)
from client.peers import Peer, forward, peer, swallow
from waiting import wait_for

WAIT_MS = 30_000
SHORT_S = 0.3
"""Of one try: shorter than what these calls wait."""


@pytest.fixture
def pool(server_url: str, pool_name: str) -> Iterator[Pool]:
    with Client(server_url) as client:
        yield client.create_pool(pool_name, num_blocks=9, block_size=4)


def num_waiting(pool: Pool) -> int:
    return sum(tenant.num_waiting for tenant in pool.tenants())


@contextmanager
def waiting_call(lease: Lease, pool: Pool, wait_ms: int = WAIT_MS) -> Iterator[Future[BlocksAllocated]]:
    """A call for one block, which waits by the time that the block is entered."""
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(lease.allocate_blocks, 1, wait_ms=wait_ms)
        wait_for(lambda: num_waiting(pool) == 1)
        yield call


def allocations(proxy: Peer) -> list[Any]:
    return [request for request in proxy.received if request.target.endswith("allocate")]


def test_a_call_waits_for_longer_than_a_try_may_take_and_asks_once(
    server_url: str, pool: Pool, pool_name: str
) -> None:
    with (
        pool.lease("holder") as holder,
        peer(forward(server_url)) as proxy,
        Client(proxy.url, timeout_s=SHORT_S, retries=NO_RETRY) as client,
        client.pool(pool_name).lease("waiter") as waiter,
    ):
        held = holder.allocate_blocks(8).block_ids
        with waiting_call(waiter, pool) as call:
            time.sleep(3 * SHORT_S)
            holder.free_blocks(held[:1])
            assert call.result().block_ids == held[:1]
        assert len(allocations(proxy)) == 1


def test_a_lease_that_waits_for_longer_than_its_time_stands(pool: Pool) -> None:
    with pool.lease("holder") as holder, pool.lease("waiter", ttl_ms=1_000) as waiter:
        held = holder.allocate_blocks(8).block_ids
        with waiting_call(waiter, pool) as call:
            time.sleep(1.5)
            holder.free_blocks(held[:1])
            assert call.result().block_ids == held[:1]
        assert not waiter.has_ended


def test_a_call_that_waited_in_vain_is_refused_as_one_that_did_not(pool: Pool) -> None:
    with pool.lease("holder") as holder, pool.lease("waiter") as waiter:
        holder.allocate_blocks(8)
        with pytest.raises(InsufficientBlocks) as caught:
            waiter.allocate("one", 4, wait_ms=50)
        assert caught.value.figures["num_free_blocks"] == 0
        assert num_waiting(pool) == 0


def test_a_sequence_gets_its_blocks_in_turn_while_its_lease_is_used(pool: Pool) -> None:
    with pool.lease("one") as lease, ThreadPoolExecutor(1) as threads:
        lease.allocate("first", 32)
        call = threads.submit(lease.allocate, "second", 8, wait_ms=WAIT_MS)
        wait_for(lambda: num_waiting(pool) == 1)
        lease.free(["first"])
        assert call.result().num_new_tokens == 8


def test_a_call_whose_answer_was_lost_gets_the_same_blocks_again(
    server_url: str, pool: Pool, pool_name: str
) -> None:
    quick = RetryPolicy(first_pause_s=0.01, max_pause_s=0.01)
    with (
        pool.lease("holder") as holder,
        peer(swallow(forward(server_url), "blocks/allocate")) as proxy,
        Client(proxy.url, retries=quick) as client,
        client.pool(pool_name).lease("waiter") as waiter,
    ):
        held = holder.allocate_blocks(8).block_ids
        with waiting_call(waiter, pool) as call:
            holder.free_blocks(held[:1])
            assert call.result().block_ids == held[:1]
        first, second = allocations(proxy)
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert pool.stats().num_free_blocks == 0


def test_a_wait_longer_than_the_server_lets_anybody_is_refused(pool: Pool) -> None:
    with pool.lease("me") as lease, pytest.raises(LimitExceeded) as caught:
        lease.allocate_blocks(1, wait_ms=120_000)
    assert caught.value.figures["limit"] == "max_wait_ms"


def test_the_asynchronous_client_waits_likewise(server_url: str, pool: Pool, pool_name: str) -> None:
    async def main() -> None:
        async with (
            AsyncClient(server_url, timeout_s=SHORT_S, retries=NO_RETRY) as client,
            client.pool(pool_name).lease("waiter") as waiter,
        ):
            call = asyncio.ensure_future(waiter.allocate("one", 4, wait_ms=WAIT_MS))
            await asyncio.to_thread(wait_for, lambda: num_waiting(pool) == 1)
            await asyncio.sleep(3 * SHORT_S)
            assert not call.done()
            await asyncio.to_thread(holder.free_blocks, held[:1])
            assert list((await call).block_ids[0]) == held[:1]

    with pool.lease("holder") as holder:
        held = holder.allocate_blocks(8).block_ids
        asyncio.run(main())
