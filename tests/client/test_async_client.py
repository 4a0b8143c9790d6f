"""The asynchronous client against a real server. Each test runs a loop of its own."""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

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
    Request,
    Response,
    RetryPolicy,
)
from client.peers import DROP, Received, forward, peer, problem, response, silence, swallow

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


def renewing_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("renew ")]


async def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what a thread or the collector does sets no event
            await asyncio.sleep(0.005)


def test_a_background_task_keeps_a_lease_past_its_time(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me", ttl_ms=2_000) as lease:
            await lease.allocate_blocks(1)
            await asyncio.sleep(2.5)
            assert (await pool.stats()).num_held_blocks == 1
            assert not lease.has_ended

    with_pool(server_url, pool_name, work)


def test_a_released_lease_leaves_no_task_behind(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me"):
            assert len(renewing_tasks()) == 1
        assert renewing_tasks() == []

    with_pool(server_url, pool_name, work)


def test_a_closed_client_leaves_no_task_behind_and_takes_no_calls(server_url: str, pool_name: str) -> None:
    async def main() -> None:
        client = AsyncClient(server_url)
        pool = await client.create_pool(pool_name, num_blocks=64, block_size=16)
        lease = await pool.lease("me")
        assert len(renewing_tasks()) == 1
        await client.close()
        assert renewing_tasks() == []
        for call in (client.pools(), lease.allocate("one", 16), pool.lease("me")):
            with pytest.raises(RuntimeError, match="the client is closed"):
                await call

    asyncio.run(main())


class SlowToCancel:
    """Grants a lease; a renewal hangs, and takes its time to end once it is cancelled."""

    def __init__(self) -> None:
        self.num_under_way = 0

    async def send(self, request: Request, timeout_s: float) -> Response:
        if request.target.endswith("/leases"):
            body = b'{"lease_id": "l", "epoch": 1, "ttl_ms": 900, "expires_at_ms": 1}'
            return Response(201, {"content-type": "application/json"}, body)
        self.num_under_way += 1
        try:
            await asyncio.sleep(timeout_s)
        finally:
            await asyncio.sleep(0.05)
            self.num_under_way -= 1
        raise ConnectionLost("hung")

    async def close(self) -> None:
        assert self.num_under_way == 0, "closed under a renewal"


def test_closing_a_client_waits_for_the_end_of_a_renewal_under_way() -> None:
    async def main() -> None:
        transport = SlowToCancel()
        client = AsyncClient("http://server.test", transport=transport)
        lease = await client.pool("p").lease("me")
        await wait_until(lambda: transport.num_under_way == 1)
        await client.close()
        assert renewing_tasks() == []
        assert not lease.has_ended

    asyncio.run(main())


def test_a_forgotten_lease_ends_its_task(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        lease = await pool.lease("me")
        assert len(renewing_tasks()) == 1
        del lease
        gc.collect()
        await wait_until(lambda: renewing_tasks() == [])

    with_pool(server_url, pool_name, work)


def test_a_renewal_that_finds_the_lease_expired_ends_it() -> None:
    granted = response(201, {"lease_id": "l", "epoch": 1, "ttl_ms": 600, "expires_at_ms": 1})

    async def main(url: str) -> None:
        async with AsyncClient(url) as client:
            lease = await client.pool("p").lease("me")
            await wait_until(lambda: lease.has_ended and renewing_tasks() == [])
            with pytest.raises(LeaseExpired):
                await lease.allocate("one", 16)

    with peer(granted, problem(410, "lease_expired")) as server:
        asyncio.run(main(server.url))
        assert len(server.received) == 2


def test_a_silent_server_is_given_up_by_the_timeout() -> None:
    over = threading.Event()

    async def main(url: str) -> None:
        async with AsyncClient(url, retries=NO_RETRY, timeout_s=0.1) as client:
            with pytest.raises(ConnectionLost):
                await client.pools()
            assert not await client.health()

    with peer(silence(over)) as server:
        asyncio.run(main(server.url))
        over.set()


def test_a_reply_that_trickles_in_is_given_up_by_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            with listener.accept()[0] as connection, suppress(OSError):
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        async def main() -> None:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with AsyncClient(url, retries=NO_RETRY, timeout_s=0.3) as client, asyncio.timeout(2.0):
                with pytest.raises(ConnectionLost, match="within"):
                    await client.pools()

        server = threading.Thread(target=trickle)
        server.start()
        asyncio.run(main())
        server.join()


def test_a_lost_reply_allocates_once(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        lease = await pool.lease("me", renew=False)
        await lease.allocate("one", 100)
        assert (await pool.stats()).num_held_blocks == 7
        await lease.release()

    with peer(swallow(forward(server_url), "/allocate")) as proxy:
        with_pool(proxy.url, pool_name, work)
        assert sum(request.target.endswith("/allocate") for request in proxy.received) == 2


def test_lost_and_refused_tries_are_made_again(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        assert (await pool.stats()).num_blocks == 64

    busy, late = problem(503, "overloaded", retry_after_ms=5), problem(408, "request_timeout")
    with peer(forward(server_url), DROP, busy, late, forward(server_url)) as proxy:
        with_pool(proxy.url, pool_name, work)
        assert len(proxy.received) == 5


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


def test_a_cancelled_step_is_resumed_and_done_once(server_url: str, pool_name: str) -> None:
    done, cancelled = threading.Event(), threading.Event()

    def held_up(request: Received) -> bytes:
        reply = forward(server_url)(request)
        if request.target.endswith("/step") and not done.is_set():
            done.set()
            cancelled.wait(10)
        return reply

    async def work(pool: AsyncPool) -> None:
        lease = await pool.lease("me", renew=False)
        scheduler = AsyncScheduler(lease, await pool.hasher())
        scheduler.add("one", range(40))
        step = asyncio.create_task(scheduler.step())
        await wait_until(done.is_set)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        cancelled.set()
        assert scheduler.is_step_under_way
        with pytest.raises(RuntimeError, match="resume"):
            await scheduler.step()
        assert (await scheduler.resume()).scheduled["one"].num_new_tokens == 40
        assert list(scheduler.block_ids("one")[0]) == list((await pool.sequence("one")).block_ids[0])
        assert (await pool.stats()).counters["num_steps"] == 1

    with peer(held_up) as proxy:
        with_pool(proxy.url, pool_name, work)


def test_a_step_that_was_resumed_while_it_is_awaited_counts_once(server_url: str, pool_name: str) -> None:
    async def work(pool: AsyncPool) -> None:
        async with pool.lease("me") as lease:
            scheduler = AsyncScheduler(lease, None)
            scheduler.add("one", range(40))
            step = asyncio.create_task(scheduler.step())
            await asyncio.sleep(0)
            results = await asyncio.gather(step, scheduler.resume(), return_exceptions=True)
            assert [isinstance(result, RuntimeError) for result in results].count(True) == 1
            assert list(scheduler.block_ids("one")[0]) == list((await pool.sequence("one")).block_ids[0])

    with_pool(server_url, pool_name, work)


def test_a_server_that_is_gone_is_a_lost_connection() -> None:
    with peer(DROP) as gone:
        pass

    async def main() -> None:
        async with AsyncClient(gone.url, retries=NO_RETRY) as client:
            with pytest.raises(ConnectionLost):
                await client.pools()

    asyncio.run(main())
