"""The asynchronous client against a real server. Each test runs a loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from blockyard.client import (
    NO_RETRY,
    AsyncClient,
    AsyncPool,
    AsyncScheduler,
    Client,
    ConnectionLost,
    InsufficientBlocks,
    LeaseExpired,
    RetryPolicy,
)
from client.peers import DROP, forward, peer, problem, redirect, swallow

QUICK = RetryPolicy(max_attempts=4, first_pause_s=0.01, max_pause_s=0.01)


def with_pool(
    url: str, name: str, work: Callable[[AsyncPool], Awaitable[None]], num_blocks: int = 64
) -> None:
    async def main() -> None:
        async with AsyncClient(url, retries=QUICK) as client:
            await work(await client.create_pool(name, num_blocks=num_blocks, block_size=16))

    asyncio.run(main())


def test_both_clients_read_the_same(server_url: str, pool_name: str) -> None:
    with Client(server_url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
        with pool.lease("me") as lease:
            lease.allocate("one", 40)

            async def work(other: AsyncPool) -> None:
                assert await other.describe() == pool.describe()
                assert await other.stats() == pool.stats()
                assert await other.audit() == pool.audit()
                assert await other.sequence("one") == pool.sequence("one")
                assert await other.lookup(40) == pool.lookup(40)

            with_pool(server_url, pool_name, work)


def test_a_server_is_reached(server_url: str, pool_name: str) -> None:
    async def main() -> None:
        async with AsyncClient(server_url) as client:
            assert await client.health()
            assert await client.ready()
            await client.create_pool(pool_name, num_blocks=64, block_size=16)
            assert pool_name in [description.pool for description in await client.pools()]

    asyncio.run(main())


def test_leaving_a_lease_frees_what_it_held(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me") as lease:
            await lease.allocate("one", 40)
            await lease.allocate_blocks(2)
            assert (await pool.stats()).num_held_blocks == 5
        assert (await pool.stats()).num_held_blocks == 0

    with_pool(server_url, pool_name, work)


def test_a_lease_can_be_awaited_and_released(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        lease = await pool.lease("me")
        await lease.release()
        with pytest.raises(LeaseExpired):
            await lease.renew()

    with_pool(server_url, pool_name, work)


def test_calls_run_side_by_side(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me") as lease:
            given = await asyncio.gather(*(lease.allocate(f"s{number}", 16) for number in range(30)))
            assert len({reply.block_ids[0][0] for reply in given}) == 30

    with_pool(server_url, pool_name, work)


def test_refusals_are_raised(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me") as lease:
            with pytest.raises(InsufficientBlocks):
                await lease.allocate("one", 10_000)

    with_pool(server_url, pool_name, work)


def test_a_background_task_keeps_a_lease_past_its_time(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me", ttl_ms=400) as lease:
            await lease.allocate_blocks(1)
            await asyncio.sleep(0.9)
            assert (await pool.stats()).num_held_blocks == 1

    with_pool(server_url, pool_name, work)


def test_no_task_is_left_behind(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        before = asyncio.all_tasks()
        async with pool.lease("me"):
            assert len(asyncio.all_tasks()) == len(before) + 1
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == before

    with_pool(server_url, pool_name, work)


def test_a_lost_reply_allocates_once(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        lease = await pool.lease("me", renew=False)
        await lease.allocate("one", 100)
        assert (await pool.stats()).num_held_blocks == 7
        await lease.release()

    with peer(swallow(forward(server_url), "/allocate")) as proxy:
        with_pool(proxy.url, pool_name, work)
        assert sum(request.target.endswith("/allocate") for request in proxy.received) == 2


def test_pauses_and_redirects_are_followed(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        assert (await pool.stats()).num_blocks == 64

    with peer(DROP, problem(503, "overloaded", retry_after_ms=5), redirect(server_url)) as node:
        with_pool(node.url, pool_name, work)
        assert len(node.received) == 3


def test_a_scheduler_steps(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me") as lease:
            scheduler = AsyncScheduler(lease, await pool.hasher())
            scheduler.add("one", range(40))
            await scheduler.step()
            assert list(scheduler.block_ids("one")[0]) == list((await pool.sequence("one")).block_ids[0])

    with_pool(server_url, pool_name, work)


def test_a_sequence_may_finish_while_its_admission_is_awaited(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me") as lease:
            scheduler = AsyncScheduler(lease, None)
            scheduler.add("one", range(40))
            step = asyncio.create_task(scheduler.step())
            await asyncio.sleep(0)
            scheduler.finish("one")
            assert (await step).scheduled == {}
            await scheduler.step()
            assert (await pool.stats()).num_held_blocks == 0

    with_pool(server_url, pool_name, work)


def test_a_server_that_is_gone_is_a_lost_connection() -> None:
    with peer(DROP) as gone:
        pass

    async def main() -> None:
        async with AsyncClient(gone.url, retries=NO_RETRY) as client:
            with pytest.raises(ConnectionLost):
                await client.pools()

    asyncio.run(main())
