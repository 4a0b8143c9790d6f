"""What a scheduler refuses by itself, and what it tells of sequences that the server refuses."""

import asyncio

import pytest

from blockyard.client import (
    NO_RETRY,
    AsyncClient,
    AsyncScheduler,
    Client,
    ConnectionLost,
    ExtraKeyForm,
    HashAlgorithm,
    Hasher,
    InvalidRequest,
    Pool,
    PoolNotFound,
    Scheduler,
)
from client.peers import DROP, forward, peer, problem, swallow

BLOCK = 4
MAX_LEN = 40


@pytest.fixture
def pool(client: Client, pool_name: str) -> Pool:
    return client.create_pool(pool_name, num_blocks=64, block_size=BLOCK, max_model_len=MAX_LEN)


def test_tokens_without_slots_cannot_be_computed(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(12))
    scheduler.step({"one": 4})
    with pytest.raises(InvalidRequest, match="12 of 4 with slots"):
        scheduler.computed("one", 12)
    scheduler.step()
    assert pool.sequence("one").num_committed_tokens == 0
    scheduler.computed("one", 12)


@pytest.mark.parametrize("is_running", [False, True])
def test_lookahead_slots_can_be_computed_and_no_more(scheduler: Scheduler, is_running: bool) -> None:
    scheduler.add("one", range(8))
    if is_running:
        scheduler.step({"one": 4})
    scheduler.step(num_lookahead_tokens=2)
    scheduler.append("one", [1, 2, 3])
    scheduler.computed("one", 10)
    with pytest.raises(InvalidRequest, match="11 of 10 with slots"):
        scheduler.computed("one", 11)


def test_slots_of_rejected_tokens_are_used_for_the_next(scheduler: Scheduler) -> None:
    scheduler.add("one", range(8))
    scheduler.step()
    scheduler.append("one", [1])
    scheduler.step(speculated={"one": 4})
    scheduler.reject("one", 4)
    scheduler.append("one", [1, 2])
    scheduler.computed("one", 11)


@pytest.mark.parametrize(
    "hasher",
    [
        Hasher(HashAlgorithm.BLAKE2B, BLOCK),
        Hasher(HashAlgorithm.SHA256, 2 * BLOCK),
        Hasher(HashAlgorithm.SHA256, BLOCK, extra_key_form=ExtraKeyForm.BARE),
    ],
    ids=["algorithm", "block_size", "extra_key_form"],
)
def test_a_hasher_that_is_not_the_pools_is_refused_and_nothing_is_sent(
    client: Client, pool_name: str, hasher: Hasher
) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK, hash_algorithm="sha256")
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, hasher)
        scheduler.add("one", range(12))
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="hasher"):
                scheduler.step()
        assert not scheduler.is_step_under_way
        assert pool.stats().num_sequences == 0


def test_the_pool_is_described_once_a_lease(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        hasher = Hasher(HashAlgorithm.BLAKE2B, BLOCK)
        with pool.lease("me") as lease, pool.lease("me") as other:
            scheduler = Scheduler(lease, hasher)
            for _ in range(3):
                scheduler.step()
            scheduler.restart(other)
            scheduler.step()
        assert [request.method for request in proxy.received].count("GET") == 2


def test_a_description_that_is_lost_leaves_no_step_under_way(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    with peer(through, through, DROP, through) as proxy, Client(proxy.url, retries=NO_RETRY) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, None)
            scheduler.add("one", range(10))
            with pytest.raises(ConnectionLost):
                scheduler.step()
            assert not scheduler.is_step_under_way
            assert list(scheduler.step().scheduled) == ["one"]


def test_an_admission_that_is_too_long_is_refused_and_the_others_go_on(
    scheduler: Scheduler, pool: Pool
) -> None:
    scheduler.add("before", range(8))
    scheduler.step()
    scheduler.append("before", [1])
    for name, num_tokens in (("long", 50), ("one", 4), ("longer", 60), ("two", 4)):
        scheduler.add(name, range(num_tokens))
    result = scheduler.step()
    assert list(result.scheduled) == ["before", "one", "two"]
    assert {
        name: (why.code, why.detail.partition(" is above")[0]) for name, why in result.refused.items()
    } == {
        "long": ("invalid_request", "num_tokens: 50"),
        "longer": ("invalid_request", "num_tokens: 60"),
    }
    assert [list(table) for table in scheduler.block_ids("two")] == [
        list(table) for table in pool.sequence("two").block_ids
    ]


def test_a_refused_sequence_stays_out_of_steps_and_is_told_of_until_it_is_finished(
    server_url: str, pool_name: str
) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK, max_model_len=MAX_LEN)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("long", range(50))
            assert [list(scheduler.step().refused) for _ in range(3)] == [["long"]] * 3
            assert scheduler.step({}).refused == {}
            scheduler.finish("long")
            assert scheduler.step().refused == {}
        steps = [request for request in proxy.received if request.target.endswith("/step")]
        assert len(steps) == 1 + 5  # one more for the faulty entry


def test_a_running_sequence_that_grows_too_long_is_refused_and_keeps_what_it_has(
    scheduler: Scheduler, pool: Pool
) -> None:
    scheduler.add("long", range(MAX_LEN - 1))
    scheduler.add("one", range(100, 110))
    scheduler.step()
    scheduler.computed("long", MAX_LEN - 1)
    scheduler.append("long", [1, 2])
    scheduler.append("one", [110, 111])
    result = scheduler.step(num_lookahead_tokens=1)
    assert (list(result.scheduled), list(result.refused)) == (["one"], ["long"])
    assert pool.sequence("long").num_committed_tokens == MAX_LEN - 1
    scheduler.append("one", [112])
    scheduler.computed("one", 13)  # the last of them in its slot for lookahead
    scheduler.finish("long")
    scheduler.add("two", range(100, 120))
    assert scheduler.step().scheduled["two"].num_cached_tokens == 12  # the hashes went along
    assert pool.stats().num_sequences == 2


def test_a_preempted_sequence_is_asked_for_anew(scheduler: Scheduler) -> None:
    scheduler.add("long", range(50))
    scheduler.step()
    scheduler.preempt("long")
    assert list(scheduler.step().refused) == ["long"]


def test_a_refusal_is_told_also_if_the_reply_to_the_rest_is_lost(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    answers = [*[through] * 4, swallow(through, "/step"), through]
    with peer(*answers) as proxy, Client(proxy.url, retries=NO_RETRY, transport="httpx") as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK, max_model_len=MAX_LEN)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, None)
            scheduler.add("long", range(50))
            scheduler.add("one", range(4))
            with pytest.raises(ConnectionLost):
                scheduler.step()
            result = scheduler.resume()
            assert (list(result.scheduled), list(result.refused)) == (["one"], ["long"])
            assert pool.stats().counters["num_admitted_sequences"] == 1


@pytest.mark.parametrize("field", ["admit.7.num_tokens", "admit", "commit.0.num_computed_tokens", "step_id"])
def test_a_step_whose_fault_is_no_sequences_is_refused_as_a_whole(
    server_url: str, pool_name: str, field: str
) -> None:
    through = forward(server_url)
    fault = problem(422, "invalid_request", errors=[{"field": field, "message": "is wrong"}])
    with peer(*[through] * 3, fault, through) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, None)
            scheduler.add("one", range(4))
            with pytest.raises(InvalidRequest):
                scheduler.step()
            assert list(scheduler.step().scheduled) == ["one"]


def test_the_asynchronous_scheduler_leaves_out_what_is_refused_too(server_url: str, pool_name: str) -> None:
    async def main() -> None:
        async with AsyncClient(server_url) as client:
            pool = await client.create_pool(pool_name, num_blocks=64, block_size=BLOCK, max_model_len=MAX_LEN)
            async with pool.lease("me") as lease:
                scheduler = AsyncScheduler(lease, await pool.hasher())
                scheduler.add("long", range(50))
                scheduler.add("one", range(4))
                result = await scheduler.step()
                assert (list(result.scheduled), list(result.refused)) == (["one"], ["long"])
            async with pool.lease("me") as lease:
                mistaken = AsyncScheduler(lease, Hasher(HashAlgorithm.BLAKE2B, 2 * BLOCK))
                with pytest.raises(InvalidRequest, match="hasher"):
                    await mistaken.step()

    asyncio.run(main())


def test_more_blocks_than_the_pool_has_are_refused_and_fewer_at_a_time_are_not(
    client: Client, pool_name: str
) -> None:
    pool = client.create_pool(pool_name, num_blocks=8, block_size=BLOCK)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, None)
        scheduler.add("large", range(8 * BLOCK))
        result = scheduler.step()
        assert result.insufficient == []
        assert result.refused["large"].code == "insufficient_blocks"
        assert "there never are more than 7" in result.refused["large"].detail
        assert list(scheduler.step({"large": 7 * BLOCK}).scheduled) == ["large"]


def test_after_a_pool_is_gone_all_goes_on_in_one_created_anew(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", range(8))
        scheduler.step()
        pool.delete(force=True)
        with pytest.raises(PoolNotFound):
            scheduler.step()
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me") as new:
            scheduler.restart(new)
            assert scheduler.step().scheduled["one"].num_new_tokens == 8


def test_a_scheduler_says_how_many_run_and_wait(scheduler: Scheduler) -> None:
    scheduler.add("one", range(4))
    scheduler.step()
    scheduler.add("two", range(4))
    assert repr(scheduler) == "<Scheduler: 1 running, 1 waiting>"
