"""Forks through the scheduler's helper and leases, against a real server."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from blockyard.client import (
    NO_RETRY,
    AsyncClient,
    AsyncScheduler,
    Client,
    ConnectionLost,
    GroupConfig,
    InvalidRequest,
    Pool,
    Scheduler,
    SequenceExistsElsewhere,
    SequenceNotFound,
)
from client.peers import forward, peer, swallow

BLOCK = 4


def assert_known(scheduler: Scheduler, pool: Pool, names: Sequence[str]) -> None:
    """What the helper keeps is what the server has."""
    for name in names:
        assert [list(table) for table in scheduler.block_ids(name)] == pool.sequence(name).block_ids


def run(scheduler: Scheduler, name: str, num_tokens: int) -> None:
    scheduler.add(name, range(num_tokens))
    scheduler.step()
    scheduler.computed(name, num_tokens)


def test_samples_of_one_prompt_share_its_blocks_and_part_where_they_write(
    scheduler: Scheduler, pool: Pool
) -> None:
    run(scheduler, "a", 6)
    forked = scheduler.fork("a", ["b", "c"])
    assert forked.block_ids == {"b": [[1, 2]], "c": [[1, 2]]}
    assert (forked.num_computed_tokens, forked.copies) == (6, [])
    for number, name in enumerate("abc"):
        scheduler.append(name, [100 + number])
    result = scheduler.step()
    assert result.copies == [[2, 3], [2, 4]]
    assert [list(result.scheduled[name].replaced) for name in "abc"] == [[(0, 1, 3)], [(0, 1, 4)], []]
    assert_known(scheduler, pool, "abc")
    assert [scheduler.block_ids(name) for name in "abc"] == [[[1, 3]], [[1, 4]], [[1, 2]]]


def test_what_was_computed_before_is_committed_for_the_forks_as_well(
    scheduler: Scheduler, pool: Pool
) -> None:
    run(scheduler, "a", 6)
    scheduler.fork("a", ["b"])
    scheduler.step()
    assert pool.sequence("b").num_committed_tokens == 6


def test_drawn_beams_are_what_the_server_has_and_leave_nothing(scheduler: Scheduler, pool: Pool) -> None:
    drawn = random.Random(4)
    run(scheduler, "beam", 9)
    beams, num_made = ["beam"], 0
    for _ in range(25):
        for beam in beams:
            scheduler.append(beam, [drawn.randrange(99)])
        result = scheduler.step()
        assert not result.insufficient
        assert_known(scheduler, pool, beams)
        for beam in beams:
            scheduler.computed(beam, pool.sequence(beam).num_computed_tokens)
        parent = drawn.choice(beams)
        new = [f"beam-{num_made + more}" for more in range(drawn.randrange(1, 3))]
        num_made += len(new)
        scheduler.fork(parent, new)
        beams += new
        while len(beams) > 3:
            scheduler.finish(beams.pop(drawn.randrange(len(beams))))
        assert pool.audit().problems == []
    for beam in beams:
        scheduler.finish(beam)
    scheduler.step()
    assert (pool.stats().num_held_blocks, pool.audit().problems) == (0, [])


def test_a_preempted_fork_is_admitted_as_any_other_sequence(scheduler: Scheduler, pool: Pool) -> None:
    run(scheduler, "a", 10)
    scheduler.fork("a", ["b"])
    scheduler.append("b", [77])
    scheduler.preempt("b")
    scheduler.step({})
    assert scheduler.step().scheduled["b"].num_cached_tokens == 8
    assert_known(scheduler, pool, "ab")


def test_states_are_copied_at_once(client: Client, pool_name: str) -> None:
    groups = [GroupConfig(kind="mamba", block_size=BLOCK, mamba_cache_mode="none")]
    pool = client.create_pool(pool_name, num_blocks=16, groups=groups, enable_prefix_caching=False)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, None)
        run(scheduler, "a", 3)
        assert scheduler.fork("a", ["b", "c"]).copies == [[1, 2], [1, 3]]
        assert_known(scheduler, pool, "abc")


def test_a_fork_with_a_lost_reply_is_undone_before_the_next_step(server_url: str, pool_name: str) -> None:
    swallowing = swallow(forward(server_url), "/fork")
    with peer(swallowing) as proxy, Client(proxy.url, retries=NO_RETRY, transport="httpx") as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            run(scheduler, "a", 6)
            with pytest.raises(ConnectionLost):
                scheduler.fork("a", ["b"])
            assert (list(scheduler.running), pool.stats().num_sequences) == (["a"], 2)
            scheduler.step()
            assert pool.stats().num_sequences == 1
            scheduler.fork("a", ["b"])
            assert_known(scheduler, pool, "ab")


def test_what_cannot_be_forked_is_refused_and_nothing_changes(scheduler: Scheduler, pool: Pool) -> None:
    run(scheduler, "a", 6)
    scheduler.add("waits", [1])
    with pytest.raises(SequenceNotFound):
        scheduler.fork("nobody", ["b"])
    for parent, names in (("a", []), ("a", ["b", "b"]), ("a", ["waits"]), ("waits", ["b"])):
        with pytest.raises(InvalidRequest):
            scheduler.fork(parent, names)
    with pool.lease("other") as other:
        other.allocate("theirs", 1)
        with pytest.raises(SequenceExistsElsewhere):
            scheduler.fork("a", ["b", "theirs"])
    scheduler.step({"a": None}, speculated={"a": 2})
    scheduler.append("a", [6])
    scheduler.step({"a": None}, speculated={"a": 2})
    with pytest.raises(InvalidRequest, match="guesses"):
        scheduler.fork("a", ["b"])
    assert list(scheduler.running) == ["a"]


def test_a_lease_takes_a_list_of_new_ids(pool: Pool) -> None:
    with pool.lease("me") as lease, pytest.raises(TypeError, match="a list"):
        lease.fork("a", "b")


def test_forks_with_await(server_url: str, pool_name: str) -> None:
    async def main() -> None:
        async with AsyncClient(server_url) as client:
            pool = await client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
            async with await pool.lease("me") as lease:
                scheduler = AsyncScheduler(lease, await pool.hasher())
                scheduler.add("a", range(6))
                await scheduler.step()
                forking = asyncio.create_task(scheduler.fork("a", ["b"]))
                await asyncio.sleep(0)
                with pytest.raises(InvalidRequest, match="in use"):
                    scheduler.add("b", [1])
                with pytest.raises(RuntimeError, match="under way"):
                    await scheduler.step()
                scheduler.append("a", [9])  # not the fork's
                assert (await forking).block_ids == {"b": [[1, 2]]}
                result = await scheduler.step()
                assert list(result.scheduled) == ["a"]
                assert result.copies == [[2, 3]]

    asyncio.run(main())
