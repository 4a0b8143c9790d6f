"""The workers' calls, as clients make them."""

import asyncio
import time

import pytest

from blockyard.client import (
    NO_RETRY,
    AsyncClient,
    Client,
    NotReady,
    Scheduler,
    StaleEpoch,
    WorkerNotFound,
    WorkerReplaced,
)

LAYER = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 1, "head_size": 8, "dtype": "float16"}
PLAN = {
    "workers": [{"available_memory_bytes": 2**16, "layers": {"0": LAYER, "1": LAYER}}],
    "max_model_len": 64,
}


def test_a_worker_registers_calls_and_leaves(server_url: str, pool_name: str) -> None:
    with Client(server_url) as client:
        pool = client.create_pool(pool_name, plan=PLAN)
        told = pool.register_worker("w", rank=0, device="cpu", incarnation="a")
        assert told.memory is not None
        assert told.memory.layers["1"].shape == (256, 1, 4, 32)
        assert pool.heartbeat("w", "a").heartbeat_ms == told.heartbeat_ms == 1_000
        (report,) = pool.workers()
        assert (report.worker_id, report.rank, report.state) == ("w", 0, "alive")
        with pytest.raises(WorkerReplaced):
            pool.heartbeat("w", "b")
        pool.remove_worker("w", "a")
        assert pool.workers() == []
        with pytest.raises(WorkerNotFound):
            pool.heartbeat("w", "a")


async def register_and_leave(url: str, name: str) -> None:
    async with AsyncClient(url) as client:
        pool = await client.create_pool(name, plan=PLAN)
        told = await pool.register_worker("w", rank=0, device="cpu", incarnation="a")
        assert (await pool.heartbeat("w", "a")).epoch == told.epoch
        await pool.remove_worker("w")
        assert await pool.workers() == []


def test_so_it_does_with_the_asynchronous_client(server_url: str, pool_name: str) -> None:
    asyncio.run(register_and_leave(server_url, pool_name))


def test_a_scheduler_starts_its_sequences_again_after_a_worker_has_lost_its_memory(
    server_url: str, pool_name: str
) -> None:
    with Client(server_url) as client:
        pool = client.create_pool(pool_name, plan=PLAN)
        pool.register_worker("w", rank=0, device="cpu", incarnation="a")
        old = pool.lease("me")
        scheduler = Scheduler(old, pool.hasher())
        scheduler.add("one", range(9))
        scheduler.step()
        scheduler.computed("one", 9)
        pool.register_worker("w", rank=0, device="cpu", incarnation="b")
        with pytest.raises(StaleEpoch):
            scheduler.step()
        assert old.has_ended
        assert old.release().num_freed_blocks == 3
        with pool.lease("me") as new:
            scheduler.restart(new)
            scheduled = scheduler.step().scheduled["one"]
            assert (scheduled.num_cached_tokens, scheduled.num_new_tokens) == (0, 9)


def test_renewal_notices_that_the_epoch_has_ended_and_the_blocks_come_back_by_themselves(
    server_url: str, pool_name: str
) -> None:
    with Client(server_url) as client:
        pool = client.create_pool(pool_name, plan=PLAN)
        pool.register_worker("w", rank=0, device="cpu", incarnation="a")
        lease = pool.lease("me", ttl_ms=1_500)
        lease.allocate("one", 9)
        pool.register_worker("w", rank=0, device="cpu", incarnation="b")
        until_s = time.monotonic() + 10
        while pool.stats().num_held_blocks and time.monotonic() < until_s:
            time.sleep(0.02)
        assert lease.has_ended
        assert pool.stats().num_held_blocks == 0


def test_no_blocks_are_given_while_a_worker_is_lost(server_url: str, pool_name: str) -> None:
    with Client(server_url) as client, Client(server_url, retries=NO_RETRY) as impatient:
        pool = client.create_pool(pool_name, plan=PLAN, worker_timeout_ms=1_000)
        pool.register_worker("w", rank=0, device="cpu", incarnation="a")
        with impatient.pool(pool_name).lease("me") as lease:
            time.sleep(1.1)
            with pytest.raises(NotReady) as caught:
                lease.allocate("one", 9)
            assert caught.value.figures["lost_ranks"] == [0]
            pool.heartbeat("w", "a")
            assert lease.allocate("one", 9).num_new_tokens == 9
