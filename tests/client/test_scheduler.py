"""The scheduler's helper against a real server: what it keeps is what the server has."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from blockyard.client import (
    NO_RETRY,
    Client,
    ConnectionLost,
    GroupConfig,
    InvalidRequest,
    LeaseExpired,
    OtherRefusal,
    Pool,
    RetryPolicy,
    Scheduler,
    SequenceNotFound,
    StaleEpoch,
    Unauthorized,
)
from client.drawn_engine import Engine
from client.peers import DROP, Answer, Peer, Received, forward, peer, problem, swallow
from client.sent_steps import plain_step

BLOCK = 4
QUICK = RetryPolicy(max_attempts=4, first_pause_s=0.01, max_pause_s=0.01)


def tables_at(pool: Pool, sequence_id: str) -> list[list[int]]:
    return [list(table) for table in pool.sequence(sequence_id).block_ids]


def bodies(proxy: Peer) -> list[dict[str, object]]:
    """The steps that a proxy let through."""
    steps = [request for request in proxy.received if request.target.endswith("/step")]
    return [plain_step(step.body) for step in steps]


def compute_and_append(scheduler: Scheduler, sequence_id: str, num_tokens: int, token: int = 1) -> None:
    scheduler.computed(sequence_id, num_tokens)
    scheduler.append(sequence_id, [token])


def test_a_sequence_is_admitted_with_slots_for_its_prompt(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(10))
    given = scheduler.step().scheduled["one"]
    assert (given.num_cached_tokens, given.num_new_tokens) == (0, 10)
    assert [list(table) for table in given.block_ids] == tables_at(pool, "one")


def test_an_appended_token_gets_a_slot_with_the_next_step(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(8))
    scheduler.step()
    compute_and_append(scheduler, "one", 8)
    given = scheduler.step().scheduled["one"]
    assert (given.num_cached_tokens, given.num_new_tokens, len(given.new_block_ids[0])) == (None, 1, 1)
    assert [list(table) for table in given.block_ids] == tables_at(pool, "one")


def test_what_has_no_new_tokens_is_not_asked_for(scheduler: Scheduler) -> None:
    scheduler.add("one", range(8))
    scheduler.step()
    assert scheduler.step().scheduled == {}


def test_a_prefix_becomes_a_hit_only_once_it_is_computed(scheduler: Scheduler) -> None:
    scheduler.add("one", range(12))
    scheduler.step()
    scheduler.add("early", range(12))
    assert scheduler.step().scheduled["early"].num_cached_tokens == 0
    scheduler.computed("one", 12)
    scheduler.add("late", range(12))
    assert scheduler.step().scheduled["late"].num_cached_tokens == 8


def test_a_prompt_gets_slots_chunk_by_chunk(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(10))
    given = [scheduler.step({"one": 4}).scheduled["one"].num_new_tokens for _ in range(3)]
    assert given == [4, 4, 2]
    assert pool.sequence("one").num_computed_tokens == 10


def test_a_budget_counts_tokens_beyond_the_cached_prefix(scheduler: Scheduler) -> None:
    scheduler.add("one", range(12))
    scheduler.step()
    scheduler.computed("one", 12)
    scheduler.add("two", range(20))
    given = scheduler.step({"two": 4}).scheduled["two"]
    assert (given.num_cached_tokens, given.num_new_tokens) == (12, 4)


def test_a_budget_of_nothing_schedules_nothing(scheduler: Scheduler) -> None:
    scheduler.add("one", range(12))
    assert scheduler.step({"one": 0}).scheduled == {}
    assert scheduler.waiting == ["one"]


def test_those_without_enough_blocks_are_named_and_wait(scheduler: Scheduler) -> None:
    scheduler.add("small", range(4))
    scheduler.add("large", range(63 * BLOCK))
    result = scheduler.step()
    assert (list(result.scheduled), result.insufficient) == (["small"], ["large"])
    assert (scheduler.running, scheduler.waiting) == (["small"], ["large"])


def test_a_running_sequence_without_enough_blocks_stays_as_it_was(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(4))
    scheduler.add("two", range(61 * BLOCK))
    scheduler.step()
    scheduler.append("one", range(3 * BLOCK))
    result = scheduler.step()
    assert result.insufficient == ["one"]
    assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")


def test_hashes_of_a_refused_extension_are_sent_again(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=16, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(4))
            scheduler.add("two", range(100, 100 + 13 * BLOCK))
            scheduler.step()
            scheduler.append("one", range(2 * BLOCK))
            assert scheduler.step().insufficient == ["one"]
            scheduler.finish("two")
            assert list(scheduler.step().scheduled) == ["one"]
            scheduler.append("one", range(BLOCK))
            scheduler.step()
        sent = [step["extend"]["block_hashes"] for step in bodies(proxy) if "extend" in step]  # type: ignore[index]
        assert [len(hashes[1]) for hashes in sent] == [2, 2, 1]
        assert sent[0] == sent[1]


def test_hashes_go_out_only_for_tokens_that_are_certain(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=16, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(4))
            scheduler.step()
            compute_and_append(scheduler, "one", 4)
            scheduler.step(speculated={"one": 7})
        extend = bodies(proxy)[1]["extend"]
        assert extend == {"sequences": [1], "num_tokens": [12], "only_changes": True}


def test_hashes_go_out_no_earlier_than_their_tokens_get_slots(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=16, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(4))
            scheduler.step()
            scheduler.append("one", range(3 * BLOCK))
            scheduler.step({"one": BLOCK})
            scheduler.step()
        sent = [step["extend"]["block_hashes"][1] for step in bodies(proxy)[1:]]  # type: ignore[index]
        assert [len(hashes) for hashes in sent] == [1, 2]


def test_rejected_tokens_give_their_slots_to_the_next_ones(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(8))
    scheduler.step()
    compute_and_append(scheduler, "one", 8)
    assert scheduler.step(speculated={"one": 4}).scheduled["one"].num_new_tokens == 5
    scheduler.append("one", [1, 2, 3])  # two guesses were right, and one token more
    scheduler.reject("one", 2)
    scheduler.computed("one", 11)
    given = scheduler.step().scheduled["one"]
    assert (given.num_new_tokens, given.new_block_ids) == (1, [[]])
    state = pool.sequence("one")
    assert (state.num_computed_tokens, state.num_committed_tokens) == (12, 11)


def test_open_guesses_hold_a_sequence_back(scheduler: Scheduler) -> None:
    scheduler.add("one", range(8))
    scheduler.step()
    scheduler.append("one", [1])
    scheduler.step(speculated={"one": 4})
    assert scheduler.step().scheduled == {}


def test_computed_tokens_cannot_be_rejected(scheduler: Scheduler) -> None:
    scheduler.add("one", range(8))
    scheduler.step()
    scheduler.computed("one", 8)
    with pytest.raises(InvalidRequest):
        scheduler.reject("one", 1)


def test_lookahead_slots_do_not_count(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(8))
    given = scheduler.step(num_lookahead_tokens=4).scheduled["one"]
    assert (given.num_new_tokens, len(given.block_ids[0])) == (8, 3)
    assert pool.sequence("one").num_computed_tokens == 8


def test_tokens_accepted_from_lookahead_are_committed_once_they_are_granted(
    scheduler: Scheduler, pool: Pool
) -> None:
    scheduler.add("one", range(8))
    scheduler.step(num_lookahead_tokens=4)
    scheduler.append("one", [1, 2, 3])
    scheduler.computed("one", 10)
    scheduler.step()
    assert pool.sequence("one").num_committed_tokens == 8
    scheduler.step()
    assert pool.sequence("one").num_committed_tokens == 10


def test_what_was_computed_before_the_end_is_still_committed(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(12))
    scheduler.step()
    scheduler.computed("one", 12)
    scheduler.finish("one")
    scheduler.add("two", range(12))
    assert scheduler.step().scheduled["two"].num_cached_tokens == 8
    with pytest.raises(SequenceNotFound):
        pool.sequence("one")


def test_a_preempted_sequence_comes_back_with_all_its_tokens(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(12))
    scheduler.add("two", range(50, 60))
    scheduler.step()
    compute_and_append(scheduler, "one", 12)
    scheduler.preempt("one")
    assert scheduler.waiting == ["one"]
    scheduler.step({})
    assert pool.stats().num_sequences == 1
    given = scheduler.step().scheduled["one"]
    assert (given.num_cached_tokens, given.num_new_tokens) == (12, 1)


def test_an_id_may_be_used_again_at_once(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(12))
    scheduler.step()
    scheduler.finish("one")
    scheduler.add("one", range(50, 58))
    scheduler.step()
    assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")
    assert pool.stats().num_sequences == 1


def test_a_waiting_sequence_may_finish(scheduler: Scheduler) -> None:
    scheduler.add("one", range(12))
    scheduler.finish("one")
    assert scheduler.step().scheduled == {}


def test_an_id_that_another_lease_holds_is_told_apart_from_a_want_of_blocks(
    scheduler: Scheduler, pool: Pool
) -> None:
    with pool.lease("you") as other:
        other.allocate("one", 4)
        scheduler.add("one", range(4))
        result = scheduler.step()
    assert (result.refused["one"].code, result.insufficient) == ("sequence_exists_elsewhere", [])


@pytest.mark.parametrize("call", ["append", "computed", "reject", "finish", "preempt", "block_ids"])
def test_an_unknown_sequence_is_not_found(scheduler: Scheduler, call: str) -> None:
    arguments: dict[str, list[object]] = {"append": [[1]], "computed": [1], "reject": [1]}
    with pytest.raises(SequenceNotFound):
        getattr(scheduler, call)("none", *arguments.get(call, []))


def test_an_id_in_use_is_refused(scheduler: Scheduler) -> None:
    scheduler.add("one", range(4))
    with pytest.raises(InvalidRequest, match="in use"):
        scheduler.add("one", range(4))


@pytest.mark.parametrize("num_tokens", [-1, 5])
def test_only_known_tokens_can_be_computed(scheduler: Scheduler, num_tokens: int) -> None:
    scheduler.add("one", range(4))
    scheduler.step()
    with pytest.raises(InvalidRequest):
        scheduler.computed("one", num_tokens)


def test_tokens_that_cannot_be_hashed_change_nothing(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(6))
    scheduler.step()
    with pytest.raises(InvalidRequest):
        scheduler.append("one", [6, -7])
    scheduler.append("one", [6])
    assert scheduler.step().scheduled["one"].num_new_tokens == 1
    assert pool.sequence("one").num_tokens == 7


def test_a_step_with_a_lost_reply_is_sent_again_by_itself(server_url: str, pool_name: str) -> None:
    with peer(swallow(forward(server_url), "/step")) as proxy, Client(proxy.url, retries=QUICK) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(10))
            scheduler.step()
            assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")
            assert pool.stats().num_held_blocks == 3
        assert [body["step_id"] for body in bodies(proxy)] == [1, 1]


def test_a_step_whose_outcome_stays_unknown_is_resumed_and_done_once(server_url: str, pool_name: str) -> None:
    swallowing = swallow(forward(server_url), "/step", times=2)
    with peer(swallowing) as proxy, Client(proxy.url, retries=NO_RETRY, transport="httpx") as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me") as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(10))
            with pytest.raises(ConnectionLost):
                scheduler.step()
            with pytest.raises(RuntimeError, match="resume"):
                scheduler.step()
            scheduler.append("one", range(5))  # goes on meanwhile
            with pytest.raises(ConnectionLost):
                scheduler.resume()
            assert scheduler.resume().scheduled["one"].num_new_tokens == 10
            assert scheduler.step().scheduled["one"].num_new_tokens == 5
            assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")
            assert pool.stats().counters["num_admitted_sequences"] == 1


def done_and(answer: bytes, server_url: str) -> Answer:
    """Lets a request through to the server, and answers otherwise."""

    def answering(request: Received) -> bytes:
        forward(server_url)(request)
        return answer

    return answering


@pytest.mark.parametrize(
    "repeat", [problem(500, "internal_error"), problem(401, "unauthorized"), problem(429, "too_many_wishes")]
)
def test_a_step_that_was_done_is_kept_whatever_its_repeat_meets(
    server_url: str, pool_name: str, repeat: bytes
) -> None:
    through = forward(server_url)
    answers: list[Answer] = [*[through] * 4, done_and(b"", server_url), repeat, repeat, through]
    with peer(*answers) as proxy, Client(proxy.url, retries=QUICK) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(10))
            for send in (scheduler.step, scheduler.resume):  # the repeat of the first, then one by itself
                with pytest.raises((OtherRefusal, Unauthorized)):
                    send()
                assert scheduler.is_step_under_way
            assert scheduler.resume().scheduled["one"].num_new_tokens == 10
            assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")
        assert len({(body["step_id"]) for body in bodies(proxy)}) == 1


def test_a_step_that_a_servers_mistake_followed_is_resumed(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    failed = done_and(problem(500, "internal_error"), server_url)
    with peer(*[through] * 4, failed, through) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(10))
            with pytest.raises(OtherRefusal):
                scheduler.step()
            assert scheduler.resume().scheduled["one"].num_new_tokens == 10
            assert pool.stats().num_sequences == 1


def test_a_first_refusal_at_the_door_gives_the_step_up(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    denied = problem(401, "unauthorized")
    with peer(*[through] * 4, denied, through) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(10))
            with pytest.raises(Unauthorized):
                scheduler.step()
            assert not scheduler.is_step_under_way
            assert scheduler.step().scheduled["one"].num_new_tokens == 10


def test_the_pools_own_refusal_of_a_resumed_step_gives_it_up(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    answers: list[Answer] = [*[through] * 4, DROP, problem(422, "invalid_request"), through]
    with peer(*answers) as proxy, Client(proxy.url, retries=NO_RETRY) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(10))
            with pytest.raises(ConnectionLost):
                scheduler.step()
            with pytest.raises(InvalidRequest):
                scheduler.resume()
            assert scheduler.step().scheduled["one"].num_new_tokens == 10


def test_what_ends_while_a_step_is_under_way_is_freed_by_the_next(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    answers = [*[through] * 5, swallow(through, "/step"), through]
    with peer(*answers) as proxy, Client(proxy.url, retries=NO_RETRY, transport="httpx") as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(8))
            scheduler.add("two", range(8))
            scheduler.step()
            scheduler.finish("one")
            with pytest.raises(ConnectionLost):
                scheduler.step()
            scheduler.finish("two")
            scheduler.resume()
            assert pool.stats().num_sequences == 1
            scheduler.step()
            assert pool.stats().num_sequences == 0


def test_a_step_refused_as_a_whole_leaves_all_of_it_for_the_next(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    refused = problem(422, "invalid_request")
    with peer(*[through] * 5, refused, through) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            scheduler.add("one", range(8))
            scheduler.step()
            scheduler.computed("one", 8)
            scheduler.add("two", range(8))
            scheduler.append("one", range(4))
            with pytest.raises(InvalidRequest):
                scheduler.step()
            assert scheduler.step().scheduled["two"].num_cached_tokens == 4
            assert pool.sequence("one").num_committed_tokens == 8
        first, second = bodies(proxy)[1:]
        assert {**first, "step_id": 0} == {**second, "step_id": 0}


def test_after_a_lost_lease_all_goes_on_under_a_new_one(pool: Pool) -> None:
    lease = pool.lease("me", renew=False)
    scheduler = Scheduler(lease, pool.hasher())
    scheduler.add("one", range(8))
    scheduler.step()
    compute_and_append(scheduler, "one", 8)
    lease.release()
    with pytest.raises(LeaseExpired):
        scheduler.step()
    with pool.lease("me") as new:
        scheduler.restart(new)
        assert scheduler.step().scheduled["one"].num_new_tokens == 9
        assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")


def test_without_a_hasher_nothing_is_cached(pool: Pool) -> None:
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, None)
        scheduler.add("one", range(12))
        scheduler.step()
        scheduler.computed("one", 12)
        scheduler.add("two", range(12))
        assert scheduler.step().scheduled["two"].num_cached_tokens == 0


def without_dropped(table: Sequence[int], server: Sequence[int]) -> list[int]:
    return [block if kept else 0 for block, kept in zip(table, server, strict=True)]


@pytest.mark.parametrize("publish", ["on_commit", "on_allocate"])
@pytest.mark.parametrize("num_blocks", [40, 400])
def test_tables_and_counts_equal_the_servers_after_every_step(
    client: Client, pool_name: str, publish: str, num_blocks: int
) -> None:
    pool = client.create_pool(pool_name, num_blocks=num_blocks, block_size=BLOCK, publish=publish)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        engine = Engine(scheduler, num_blocks)
        for _ in range(150):
            engine.step()
            for name in scheduler.running:
                state, own = pool.sequence(name), scheduler._schedule._sequences[name]
                assert [list(table) for table in state.block_ids] == own.block_ids
                assert state.num_computed_tokens == own.num_counted_tokens
        assert engine.num_made > 50
        assert pool.audit().ok


FULL = GroupConfig(kind="full_attention", block_size=BLOCK)


@pytest.mark.parametrize(
    "other",
    [
        GroupConfig(kind="sliding_window", block_size=BLOCK, sliding_window=2 * BLOCK),
        GroupConfig(kind="rswa", block_size=BLOCK, rswa_window=BLOCK),
        GroupConfig(kind="mamba", block_size=BLOCK, mamba_cache_mode="align"),
        GroupConfig(kind="mamba", block_size=BLOCK, mamba_cache_mode="align", num_speculative_blocks=3),
        GroupConfig(kind="mamba", block_size=4 * BLOCK, mamba_cache_mode="align", num_speculative_blocks=3),
        GroupConfig(kind="circular_buffer", block_size=BLOCK),
    ],
    ids=lambda group: f"{group.kind}-{group.block_size}-{group.num_speculative_blocks}",
)
@pytest.mark.parametrize("publish", ["on_commit", "on_allocate"])
def test_tables_equal_the_servers_where_nothing_was_dropped(
    client: Client, pool_name: str, other: GroupConfig, publish: str
) -> None:
    pool = client.create_pool(pool_name, num_blocks=120, groups=[FULL, other], publish=publish)
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        engine = Engine(scheduler, 7)
        for _ in range(80):
            engine.step()
            for name in scheduler.running:
                full, dropping = scheduler.block_ids(name)
                server_full, server_dropping = tables_at(pool, name)
                assert (full, without_dropped(dropping, server_dropping)) == (server_full, server_dropping)
        assert pool.audit().ok


def test_lost_replies_never_part_the_two_sides(server_url: str, pool_name: str) -> None:
    draw = random.Random(5)
    through = forward(server_url)
    lossy = [
        through,
        *(swallow(through, "/step") if draw.random() < 0.3 else through for _ in range(400)),
        through,
    ]
    with peer(*lossy) as proxy, Client(proxy.url, retries=QUICK) as client, Client(server_url) as direct:
        pool = client.create_pool(pool_name, num_blocks=60, block_size=BLOCK)
        with pool.lease("me", renew=False) as lease:
            scheduler = Scheduler(lease, pool.hasher())
            engine = Engine(scheduler, 5)
            for _ in range(100):
                engine.step()
            for name in scheduler.running:
                assert scheduler.block_ids(name) == tables_at(direct.pool(pool_name), name)
            assert direct.pool(pool_name).audit().ok


def test_after_a_change_of_epoch_all_goes_on_under_a_new_lease(server_url: str, pool_name: str) -> None:
    through = forward(server_url)
    stale = problem(409, "stale_epoch", epoch=2)
    answers: list[Answer] = [*[through] * 5, stale, through]
    with peer(*answers) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=BLOCK)
        old = pool.lease("me", renew=False)
        scheduler = Scheduler(old, pool.hasher())
        scheduler.add("one", range(8))
        scheduler.step()
        compute_and_append(scheduler, "one", 8)
        with pytest.raises(StaleEpoch) as caught:
            scheduler.step()
        assert caught.value.figures == {"epoch": 2}
        old.release()
        with pool.lease("me", renew=False) as new:
            scheduler.restart(new)
            assert (scheduler.waiting, scheduler.running) == (["one"], [])
            assert scheduler.step().scheduled["one"].num_new_tokens == 9
            assert [list(table) for table in scheduler.block_ids("one")] == tables_at(pool, "one")


def test_another_scheduler_under_the_same_lease_numbers_its_steps_on(pool: Pool) -> None:
    with pool.lease("me") as lease:
        first, second = Scheduler(lease, None), Scheduler(lease, None)
        first.add("one", range(4))
        second.add("two", range(4))
        assert list(first.step().scheduled) == ["one"]
        assert list(second.step().scheduled) == ["two"]


def test_a_token_that_cannot_be_is_refused_where_it_is_given(scheduler: Scheduler, pool: Pool) -> None:
    scheduler.add("one", range(6))
    scheduler.step()
    for wrong in ([-7], [True], [1.5], ["a"]):
        with pytest.raises(InvalidRequest, match="token_ids"):
            scheduler.append("one", wrong)  # type: ignore[arg-type]
    scheduler.append("one", [6, 7, 8])
    assert scheduler.step().scheduled["one"].num_new_tokens == 3
    assert pool.sequence("one").num_tokens == 9


def test_a_token_that_cannot_be_is_refused_also_where_nothing_is_hashed(pool: Pool) -> None:
    with pool.lease("me") as lease:
        scheduler = Scheduler(lease, None)
        with pytest.raises(InvalidRequest, match="token_ids"):
            scheduler.add("one", [1, -7])
        assert scheduler.waiting == []


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("schedule", {"schedule": {"one": -1}}),
        ("speculated", {"speculated": {"one": -1}}),
        ("num_lookahead_tokens", {"num_lookahead_tokens": -1}),
        ("speculated", {"schedule": {}, "speculated": {"one": 1}}),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(
    scheduler: Scheduler, field: str, arguments: dict[str, Any]
) -> None:
    scheduler.add("one", range(4))
    scheduler.step()
    with pytest.raises(InvalidRequest) as caught:
        scheduler.step(**arguments)
    assert [error["field"] for error in caught.value.figures["errors"]] == [field]
    assert scheduler.step().scheduled == {}


@pytest.mark.parametrize("arguments", [{"schedule": {"none": 1}}, {"speculated": {"none": 1}}])
def test_a_step_for_an_unknown_sequence_is_refused(scheduler: Scheduler, arguments: dict[str, Any]) -> None:
    with pytest.raises(SequenceNotFound, match="none"):
        scheduler.step(**arguments)
    assert not scheduler.is_step_under_way


def test_only_a_callers_verbs_are_public() -> None:
    public = {name for name in dir(Scheduler) if not name.startswith("_")}
    between = {"add", "append", "computed", "reject", "finish", "preempt", "block_ids", "waiting", "running"}
    assert public == between | {"step", "resume", "fork", "restart", "is_step_under_way"}
