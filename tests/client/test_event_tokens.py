"""A pool's events have the tokens of their blocks where the pool needs them, and no others are sent."""

import asyncio
import json
import random
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from blockyard.client import (
    AsyncClient,
    AsyncScheduler,
    Client,
    EventsConfig,
    GroupConfig,
    HashAlgorithm,
    Hasher,
    HashForm,
    InvalidRequest,
    Pool,
    RetryPolicy,
    Scheduler,
)
from blockyard.core.extra_keys import NO_EXTRAS
from blockyard.core.hash_chain import HashChain, coarser_view
from blockyard.core.ids import BlockHash
from client.drawn_engine import Engine
from client.peers import Peer, forward, peer, swallow
from client.sent_steps import plain_step

BLOCK = 4
NEEDS = EventsConfig(needs_token_ids=True)
QUICK = RetryPolicy(max_attempts=4, first_pause_s=0.01, max_pause_s=0.01)


@pytest.fixture
def client(server_url: str) -> Iterator[Client]:
    with Client(server_url) as made:
        yield made


def make_pool(client: Client, name: str, **options: Any) -> Pool:
    return client.create_pool(name, **{"num_blocks": 64, "block_size": BLOCK, "events": NEEDS, **options})


def snapshot_at(url: str, name: str) -> dict[str, Any]:
    document: dict[str, Any] = httpx.get(f"{url}/v1/pools/{name}/events/snapshot").raise_for_status().json()
    return document


def batches_at(url: str, name: str) -> list[list[dict[str, Any]]]:
    """The events of all batches so far, one by one, as a subscriber gets them."""
    snapshot = snapshot_at(url, name)
    batches: list[list[dict[str, Any]]] = []
    after_nothing = {"Last-Event-ID": f"{snapshot['stream_id']}:-1"}
    with httpx.stream("GET", f"{url}/v1/pools/{name}/events", headers=after_nothing, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                batch = json.loads(line.removeprefix("data: "))
                assert batch["sequence_number"] == len(batches)
                batches.append(batch["events"])
            if len(batches) == snapshot["sequence_number"]:
                break
    return batches


def num_checked(events: Iterable[dict[str, Any]], hasher: Hasher) -> int:
    """How many blocks were stored, after hashing the tokens of each anew."""
    num_blocks = 0
    for event in events:
        if event["type"] != "BlockStored":
            continue
        before, found = event["parent_block_hash"], event["block_hashes"]
        parent = hasher.none_hash if before is None else BlockHash(bytes.fromhex(before))
        _, hashes = HashChain(hasher, NO_EXTRAS, 0, parent, b"").append(event["token_ids"])
        assert len(event["token_ids"]) == len(found) * event["block_size"]
        own = coarser_view(hashes, event["block_size"] // hasher.block_size)
        assert [block_hash.hex() for block_hash in own] == found
        num_blocks += len(found)
    return num_blocks


def check_events(url: str, pool: Pool) -> int:
    """How many blocks a pool's events and its snapshot tell of, each with the tokens of its hash."""
    hasher = pool.hasher()
    told = [event for batch in batches_at(url, pool.name) for event in batch]
    return num_checked(told, hasher) + num_checked(snapshot_at(url, pool.name)["events"], hasher)


def steps(proxy: Peer) -> list[dict[str, Any]]:
    """The steps that a proxy let through, save for the lease that each is of."""
    sent = [request.body for request in proxy.received if request.target.endswith("/step")]
    bodies = [plain_step(body) for body in sent]
    return [{name: value for name, value in body.items() if name != "lease_id"} for body in bodies]


FULL = GroupConfig(kind="full_attention", block_size=BLOCK)
WINDOW = GroupConfig(kind="sliding_window", block_size=BLOCK, sliding_window=2 * BLOCK)
WIDE = GroupConfig(kind="full_attention", block_size=2 * BLOCK)


@pytest.mark.parametrize("publish", ["on_commit", "on_allocate"])
@pytest.mark.parametrize("groups", [[FULL], [FULL, WINDOW], [WIDE, FULL]], ids=["one", "window", "wide"])
def test_every_block_comes_with_its_tokens_whatever_an_engine_does(
    server_url: str, pool_name: str, publish: str, groups: list[GroupConfig]
) -> None:
    draw = random.Random(len(groups))
    through = forward(server_url)
    lossy = [swallow(through, "/step") if draw.random() < 0.1 else through for _ in range(400)]
    with peer(*lossy, through) as proxy, Client(proxy.url, retries=QUICK) as client:
        pool = client.create_pool(
            pool_name,
            num_blocks=30 * len(groups),
            groups=groups,
            publish=publish,
            max_model_len=34,
            events=NEEDS,
        )
        lease = pool.lease("me", renew=False)
        scheduler = Scheduler(lease, pool.hasher())
        engine = Engine(scheduler, len(groups), max_model_len=34)
        for turn in range(150):
            if turn == 70:  # starts again with all that there is
                lease.release()
                lease = pool.lease("me", renew=False)
                scheduler.restart(lease)
            engine.step()
        lease.release()
    with Client(server_url) as client:
        told = [event["type"] for batch in batches_at(server_url, pool_name) for event in batch]
        assert check_events(server_url, client.pool(pool_name)) > 200
        assert min(told.count("BlockRemoved"), engine.num_preempted, engine.num_refused) > 5


@pytest.mark.parametrize("ids", [list, tuple, lambda ids: array("i", ids), deque])
def test_any_sequence_of_token_ids_is_told(
    client: Client, server_url: str, pool_name: str, ids: Callable[[Iterable[int]], Sequence[int]]
) -> None:
    pool = make_pool(client, f"{pool_name[-90:]}-x", publish="on_allocate")
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("one", ids(range(9)))
        scheduler.append("one", ids(range(3)))
        scheduler.step()
        (event,) = snapshot_at(server_url, pool.name)["events"]
    assert event["token_ids"] == [*range(9), *range(3)]


def test_tokens_are_sent_with_their_hashes_and_again_after_a_refusal(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = make_pool(client, pool_name, num_blocks=16)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(6))
            scheduler.add("two", range(100, 100 + 13 * BLOCK))
            scheduler.step()
            scheduler.append("one", range(6, 14))
            assert scheduler.step().insufficient == ["one"]
            scheduler.finish("two")
            scheduler.step()
            scheduler.append("one", [14])
            scheduler.step()
            scheduler.preempt("one")
            scheduler.step()
        first, *_, last = steps(proxy)
        extended = [step["extend"].get("event_token_ids") for step in steps(proxy) if "extend" in step]
    assert first["admit"][0]["event_token_ids"] == list(range(4))
    assert extended == [{1: list(range(4, 12))}] * 2 + [None]
    assert last["admit"][0]["event_token_ids"] == list(range(12))


def test_a_step_without_its_faulty_entries_keeps_the_tokens_of_the_others(
    client: Client, server_url: str, pool_name: str
) -> None:
    pool = make_pool(client, pool_name, max_model_len=20, publish="on_allocate")
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("long", range(100, 119))
        scheduler.add("one", range(3))
        scheduler.step()
        scheduler.append("long", range(8))
        scheduler.append("one", range(3, 12))
        result = scheduler.step()
        assert (list(result.scheduled), list(result.refused)) == (["one"], ["long"])
        assert check_events(server_url, pool) == 2 * (4 + 3)


def sent_to(
    server_url: str, name: str, *, sends_token_ids: bool = False, **options: Any
) -> list[dict[str, Any]]:
    """The steps of a scheduler that admits, extends and preempts, in a pool of these ``options``."""
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(name, num_blocks=64, block_size=BLOCK, **options)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher(), sends_token_ids=sends_token_ids)
            scheduler.add("one", range(9))
            scheduler.step()
            scheduler.append("one", range(9))
            scheduler.step()
            scheduler.preempt("one")
            scheduler.step()
        return steps(proxy)


def without_event_tokens(value: Any) -> Any:
    if isinstance(value, list):
        return [without_event_tokens(part) for part in value]
    if isinstance(value, dict):
        return {k: without_event_tokens(part) for k, part in value.items() if k != "event_token_ids"}
    return value


def test_a_pool_that_needs_no_tokens_is_sent_none(server_url: str, pool_name: str) -> None:
    hashes = [
        bytes(each) for each in Hasher(HashAlgorithm.BLAKE2B, BLOCK).start().append([*range(9), *range(9)])[1]
    ]
    sent = [
        sent_to(server_url, f"{pool_name}-none"),
        sent_to(server_url, f"{pool_name}-none-to-tell", sends_token_ids=True),
        sent_to(server_url, f"{pool_name}-some", events=True),
        without_event_tokens(sent_to(server_url, f"{pool_name}-all", events=NEEDS)),
    ]
    common = {"sequence_id": "one", "block_hashes": hashes[:2]}
    assert (
        sent
        == [
            [
                {"epoch": 1, "step_id": 1, "admit": [{**common, "num_tokens": 9}]},
                {
                    "epoch": 1,
                    "step_id": 2,
                    "extend": {
                        "sequences": [1],
                        "num_tokens": [18],
                        "block_hashes": {1: hashes[2:]},
                        "only_changes": True,
                    },
                },
                {
                    "epoch": 1,
                    "step_id": 3,
                    "free": {"sequences": [1]},
                    "admit": [{**common, "num_tokens": 18, "num_prompt_tokens": 9, "block_hashes": hashes}],
                },
            ]
        ]
        * 4
    )


def test_a_pool_that_does_not_need_tokens_is_told_them_on_demand(server_url: str, pool_name: str) -> None:
    told = sent_to(server_url, f"{pool_name}-told", events=True, sends_token_ids=True)
    assert told == sent_to(server_url, f"{pool_name}-needed", events=NEEDS)
    assert told[0]["admit"][0]["event_token_ids"] == list(range(8))


def test_tokens_are_kept_only_for_a_pool_that_is_sent_them(client: Client, pool_name: str) -> None:
    def kept(pool: Pool, hasher: Hasher | None) -> list[int | None]:
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, hasher)
            scheduler.add("before", range(9))
            scheduler.step()
            scheduler.add("after", range(9))
            tracked = scheduler._schedule._sequences.values()
            return [None if each.token_ids is None else len(each.token_ids) for each in tracked]

    needing, other = make_pool(client, pool_name), make_pool(client, f"{pool_name}-other", events=True)
    assert kept(needing, needing.hasher()) == [9, 9]
    assert kept(other, other.hasher()) == kept(needing, None) == [None, None]


def test_tokens_that_were_not_kept_are_asked_for_by_name_when_a_new_pool_needs_them(
    client: Client, pool_name: str
) -> None:
    old, new = make_pool(client, pool_name, events=True), make_pool(client, f"{pool_name}-new")
    with old.lease("me") as lease, new.lease("me") as next_lease:
        scheduler = Scheduler(lease, old.hasher())
        scheduler.add("one", range(9))
        scheduler.step()
        scheduler.restart(next_lease)
        scheduler.add("two", range(9))
        with pytest.raises(InvalidRequest, match=r"\['one'\] were not kept"):
            scheduler.step()
        assert not scheduler.is_step_under_way
        scheduler.finish("one")
        scheduler.add("one", range(9))
        assert list(scheduler.step().scheduled) == ["two", "one"]


def test_plain_calls_tell_tokens_too(client: Client, server_url: str, pool_name: str) -> None:
    pool = make_pool(client, pool_name)
    _, hashes = pool.hasher().start().append(range(12))
    with pool.lease("me") as lease:
        with pytest.raises(InvalidRequest, match="event_token_ids"):
            lease.allocate("one", 12, block_hashes=hashes[:2])
        lease.allocate("one", 12, block_hashes=hashes[:2], event_token_ids=range(8))
        lease.commit("one", 12, block_hashes=hashes[2:], event_token_ids=range(8, 12))
        assert check_events(server_url, pool) == 2 * 3


def test_an_async_scheduler_and_lease_tell_tokens_too(server_url: str, pool_name: str) -> None:
    async def main() -> None:
        async with AsyncClient(server_url) as client:
            pool = await client.create_pool(pool_name, num_blocks=64, block_size=BLOCK, events=NEEDS)
            hasher = await pool.hasher()
            async with pool.lease("me") as lease:
                scheduler = AsyncScheduler(lease, hasher)
                scheduler.add("one", range(12))
                await scheduler.step()
                scheduler.computed("one", 12)
                await scheduler.step()
                _, hashes = hasher.start().append(range(50, 62))
                await lease.allocate("two", 12, block_hashes=hashes[:2], event_token_ids=range(50, 58))
                await lease.commit("two", 12, block_hashes=hashes[2:], event_token_ids=range(58, 62))

    asyncio.run(main())
    with Client(server_url) as client:
        assert check_events(server_url, client.pool(pool_name)) == 2 * 6


def test_a_description_says_how_a_pool_publishes(client: Client, pool_name: str) -> None:
    given: list[Any] = [
        False,
        True,
        {"rank": 2, "topic": None},
        EventsConfig(hash_form=HashForm.BYTES, topic="t"),
    ]
    pools = [
        client.create_pool(f"{pool_name}-{number}", num_blocks=8, block_size=BLOCK, events=events)
        for number, events in enumerate(given)
    ]
    assert [pool.describe().events for pool in pools] == [
        None,
        EventsConfig(),
        EventsConfig(rank=2),
        EventsConfig(hash_form=HashForm.BYTES, topic="t"),
    ]
    assert client.create_pool(f"{pool_name}-4", num_blocks=8, block_size=BLOCK).describe().events is None
