"""A scheduler's chunks of prompts end where recurrent states are found again."""

import asyncio
from collections.abc import Iterator
from typing import Any

import ormsgpack
import pytest

from blockyard.client import AsyncClient, AsyncScheduler, Client, GroupConfig, Pool, Scheduler
from client.peers import forward, peer

BLOCK = 8
FULL = GroupConfig(kind="full_attention", block_size=BLOCK)
STATE = GroupConfig(kind="mamba", block_size=BLOCK, mamba_cache_mode="align")


@pytest.fixture
def client(server_url: str) -> Iterator[Client]:
    with Client(server_url) as made:
        yield made


def make_pool(client: Client, name: str, *groups: GroupConfig, **options: Any) -> Pool:
    return client.create_pool(name, num_blocks=200, groups=groups, **options)


def compute(scheduler: Scheduler, name: str, budget: int | None = None) -> tuple[int, list[int]]:
    """Compute all of a sequence's tokens, chunk by chunk: its hit, and where each chunk ended."""
    num_computed, ends, num_cached = 0, [], 0
    while (given := scheduler.step({name: budget}).scheduled.get(name)) is not None:
        if given.num_cached_tokens is not None:
            num_computed = num_cached = given.num_cached_tokens
        num_computed += given.num_new_tokens
        scheduler.computed(name, num_computed)
        ends.append(num_computed)
    return num_cached, ends


@pytest.mark.parametrize("budget", [None, 20])
def test_the_same_prompt_finds_its_state(client: Client, pool_name: str, budget: int | None) -> None:
    pool = make_pool(client, f"{pool_name}-{budget}", FULL, STATE, STATE)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", range(51))
        assert compute(scheduler, "one", budget) == (0, [48, 51] if budget is None else [16, 32, 48, 51])
        scheduler.add("two", range(51))
        assert compute(scheduler, "two", budget) == (48, [51])
        assert pool.audit().ok


def test_each_turn_of_a_chat_finds_the_one_before(client: Client, pool_name: str) -> None:
    pool = make_pool(client, pool_name, FULL, STATE)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        turns = []
        for turn, num_tokens in enumerate((20, 45, 70)):
            scheduler.add(f"turn {turn}", range(num_tokens))
            turns.append(compute(scheduler, f"turn {turn}"))
            scheduler.finish(f"turn {turn}")
    assert turns == [(0, [16, 20]), (16, [40, 45]), (40, [64, 70])]


def test_a_hit_that_ends_inside_a_block_brings_copies_with_its_step(client: Client, pool_name: str) -> None:
    pool = make_pool(client, pool_name, FULL, STATE, hash_block_size=2)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", range(31))
        assert compute(scheduler, "one") == (0, [30, 31])
        scheduler.add("two", range(31))
        result = scheduler.step()
        assert result.scheduled["two"].num_cached_tokens == 30
        # A block of each group is shared up to token 30; "two" writes on in copies.
        last = [table[3] for table in scheduler.block_ids("one")]
        own = [table[3] for table in scheduler.block_ids("two")]
        assert [destination for _, destination in result.copies] == own
        assert result.copies[0][0] == last[0]
        assert len({*last, *own}) == 4


def test_the_copy_that_saves_a_state_comes_with_the_step_that_overwrites_it(
    client: Client, pool_name: str
) -> None:
    pool = make_pool(client, pool_name, FULL, STATE, hash_block_size=2)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", range(31))
        assert scheduler.step().copies == []  # to 30
        scheduler.computed("one", 30)
        scheduler.step({})  # published
        (copy,) = scheduler.step().copies
        assert copy[0] == scheduler.block_ids("one")[1][3]
        assert copy[1] not in [block for table in scheduler.block_ids("one") for block in table]


def test_a_plain_call_tells_its_copies(client: Client, pool_name: str) -> None:
    pool = make_pool(client, pool_name, FULL, STATE, hash_block_size=2)
    hashes = pool.hasher().start().append(range(31))[1]
    with pool.lease("me") as lease:
        first = lease.allocate("one", 31, max_new_tokens=30, block_hashes=hashes)
        assert first.copies == []
        lease.commit("one", 30)
        found = lease.allocate("two", 31, block_hashes=hashes)
        assert found.num_cached_tokens == 30
        assert [destination for _, destination in found.copies] == [table[3] for table in found.block_ids]


def test_a_step_is_one_call_and_asks_for_states_only_where_they_are_kept(
    server_url: str, pool_name: str
) -> None:
    def asked(*groups: GroupConfig) -> list[bool]:
        with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
            pool = make_pool(client, f"{pool_name}-{len(groups)}", *groups)
            with pool.lease("me") as lease:
                scheduler = Scheduler(lease, pool.hasher())
                scheduler.step()
                num_before = len(proxy.received)
                for name in ("one", "two"):
                    scheduler.add(name, range(51))
                    scheduler.step()
                sent = proxy.received[num_before:]
        assert [request.target.rsplit("/", 1)[1] for request in sent] == ["step", "step"]
        return ["end_at_state" in ormsgpack.unpackb(request.body)["admit"][0] for request in sent]

    assert (asked(FULL, STATE), asked(FULL)) == ([True, True], [False, False])


def test_a_scheduler_without_a_hasher_lets_chunks_end_anywhere(client: Client, pool_name: str) -> None:
    pool = make_pool(client, pool_name, FULL, STATE)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, None)
        scheduler.add("one", range(51))
        assert compute(scheduler, "one", 20) == (0, [20, 40, 51])


def test_a_sequence_that_had_to_wait_begins_with_what_was_left_meanwhile(
    client: Client, pool_name: str
) -> None:
    pool = client.create_pool(pool_name, num_blocks=14, groups=[FULL, STATE])
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", range(51))
        scheduler.step()
        scheduler.add("two", range(51))
        scheduler.add("three", range(51))
        assert scheduler.step({"two": None, "three": None}).insufficient == ["two", "three"]
        scheduler.computed("one", 48)
        scheduler.finish("one")
        scheduler.step({})
        given = scheduler.step({"two": None}).scheduled["two"]
        assert (given.num_cached_tokens, given.num_new_tokens) == (48, 3)


def test_guesses_are_not_cut_at_block_ends(client: Client, pool_name: str) -> None:
    speculating = GroupConfig(
        kind="mamba", block_size=BLOCK, mamba_cache_mode="align", num_speculative_blocks=3
    )
    pool = make_pool(client, pool_name, FULL, speculating)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", range(13))
        compute(scheduler, "one")
        scheduler.append("one", [13])
        given = scheduler.step(speculated={"one": 3}).scheduled["one"]
        assert given.num_new_tokens == 4  # 13 to 17, over the block end at 16


def test_an_async_scheduler_ends_its_chunks_alike(server_url: str, pool_name: str) -> None:
    async def main() -> list[tuple[int | None, int]]:
        async with AsyncClient(server_url) as client:
            pool = await client.create_pool(pool_name, num_blocks=200, groups=[FULL, STATE])
            async with pool.lease("me") as lease:
                scheduler = AsyncScheduler(lease, await pool.hasher())
                given = []
                for name in ("one", "two"):
                    scheduler.add(name, range(51))
                    first = (await scheduler.step()).scheduled[name]
                    given.append((first.num_cached_tokens, first.num_new_tokens))
                    scheduler.computed(name, (first.num_cached_tokens or 0) + first.num_new_tokens)
                    await scheduler.step({})
                return given

    assert asyncio.run(main()) == [(0, 48), (48, 3)]


def test_a_prompt_stays_the_prompt_through_a_preemption(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(20))
            scheduler.step()
            for _ in range(2):
                scheduler.append("one", [1, 2])
                scheduler.preempt("one")
                scheduler.step()
        steps = [request.body for request in proxy.received if request.target.endswith("/step")]
        admitted = [ormsgpack.unpackb(body)["admit"][0] for body in steps]
    assert [(a["num_tokens"], a.get("num_prompt_tokens", a["num_tokens"])) for a in admitted] == [
        (20, 20),
        (22, 20),
        (24, 20),
    ]


def test_encoder_tokens_get_their_blocks_when_a_sequence_is_admitted_and_again(
    client: Client, pool_name: str
) -> None:
    cross = GroupConfig(kind="cross_attention", block_size=BLOCK)
    pool = make_pool(client, pool_name, FULL, cross, enable_prefix_caching=False)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, None)
        scheduler.add("one", range(3), num_encoder_tokens=20)
        scheduler.step()
        assert [len(table) for table in scheduler.block_ids("one")] == [1, 3]
        scheduler.preempt("one")
        scheduler.step()
        assert [len(table) for table in scheduler.block_ids("one")] == [1, 3]
