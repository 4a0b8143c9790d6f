"""Histories of registers of a real pool are accepted, and what is planted in them is found."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.support import make_api, make_lease
from cluster.register_calls import RegisterCalls
from cluster.register_history import RegisterHistories
from cluster.registers import REGISTER_POOLS, registers
from crash.calls import READS, Answer, Call, Verb

NUM_CLIENTS = 3
Log = list[tuple[Call, Answer | None]]


def drawn_log(draw: random.Random, num_calls: int, open_share: float = 0.0) -> Log:
    """Of clients of a real server in this process: calls overlap, and are carried out one by one."""
    log: Log = []
    with make_api(volatile=True) as api:
        for pool in REGISTER_POOLS:
            assert api.put(f"/v1/pools/{pool.name}", json=pool.body).status_code == 201
        leases = {pool.name: make_lease(api, f"/v1/pools/{pool.name}") for pool in REGISTER_POOLS}
        clients = [RegisterCalls(number, NUM_CLIENTS, number, leases) for number in range(NUM_CLIENTS)]
        at_ns = 0
        for client in (draw.choice(clients) for _ in range(num_calls)):
            at_ns += 10
            call = replace(client.next(), at_ns=at_ns - draw.randint(0, 25))
            if call.verb is Verb.READ:
                reply = api.get(f"/v1/pools/{call.pool}/sequences/{call.body['sequence_id']}")
            else:
                reply = api.post(f"/v1/pools/{call.pool}/{call.verb}", json=call.body)
            answer = Answer(
                number=call.number,
                status=reply.status_code,
                num_tries=1,
                body=reply.json(),
                tried_ns=call.at_ns,
                at_ns=at_ns + draw.randint(0, 25),
            )
            client.note(call, answer)
            is_open = call.verb not in READS and draw.random() < open_share
            log.append((call, None if is_open else answer))
    return log


def complaints(log: Log) -> list[str]:
    histories = RegisterHistories(registers(NUM_CLIENTS))
    for call, answer in log:
        histories.note(call, answer)
    return list(histories.complaints())


def changed(log: Log, verb: Verb, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Log:
    """The answer of the last call of ``verb`` that ``change`` changes."""
    for number in reversed(range(len(log))):
        call, answer = log[number]
        if call.verb is verb and answer is not None and answer.is_success:
            body = change(answer.body)
            if body is not None:
                return [*log[:number], (call, replace(answer, body=body)), *log[number + 1 :]]
    raise AssertionError(f"no {verb} can be changed")


@settings(deadline=None, max_examples=5)
@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.01]))
def test_what_a_pool_did_is_accepted(draw: random.Random, open_share: float) -> None:
    assert complaints(drawn_log(draw, 300, open_share)) == []


def test_each_kind_of_call_is_made_answered_and_refused() -> None:
    seen = Counter(
        (call.verb, answer.status) for call, answer in drawn_log(random.Random(1), 1_500) if answer
    )
    assert {
        (Verb.ALLOCATE, 200),
        (Verb.ALLOCATE, 422),
        (Verb.COMMIT, 200),
        (Verb.COMMIT, 404),
        (Verb.COMMIT, 422),
        (Verb.FREE, 200),
        (Verb.READ, 200),
        (Verb.READ, 404),
        (Verb.LOOKUP, 200),
    } <= set(seen)


def test_an_extension_is_not_taken_for_a_beginning() -> None:
    """Freed and extended at the same time: the extension came first, as its answer shows."""
    pool = REGISTER_POOLS[0].name

    def logged(verb: Verb, at_ns: int, body: dict[str, Any], told: dict[str, Any]) -> tuple[Call, Answer]:
        call = Call(number=at_ns, verb=verb, pool=pool, key="", body=body, at_ns=at_ns)
        return call, Answer(
            number=at_ns, status=200, num_tries=1, body=told, tried_ns=at_ns, at_ns=at_ns + 10
        )

    named = {"sequence_id": "shared-0", "block_hashes": []}
    begun = {"sequence": 1, "num_cached_tokens": 0, "num_new_tokens": 20, "block_ids": [[1, 2]]}
    extended = {"sequence": 1, "num_new_tokens": 10, "block_ids": [[]]}
    log: Log = [
        logged(Verb.ALLOCATE, 0, {**named, "num_tokens": 20}, begun),
        logged(Verb.FREE, 20, {"sequence_ids": ["shared-0"]}, {"unknown": []}),
        logged(Verb.ALLOCATE, 25, {**named, "num_tokens": 30}, extended),
    ]
    assert complaints(log) == []
    (late, told) = logged(Verb.ALLOCATE, 40, {**named, "num_tokens": 30}, extended)
    (complaint,) = complaints([*log[:2], (late, told)])
    assert "is not linearizable" in complaint


PLANTED: dict[str, tuple[Verb, Callable[[dict[str, Any]], dict[str, Any] | None]]] = {
    "a commit that a read does not know": (
        Verb.READ,
        lambda told: (
            {**told, "num_committed_tokens": told["num_committed_tokens"] - 1}
            if told["num_committed_tokens"]
            else None
        ),
    ),
    "an extension that a read does not know": (
        Verb.READ,
        lambda told: {**told, "num_tokens": told["num_tokens"] - 1},
    ),
    "another block in a table": (
        Verb.READ,
        lambda told: {**told, "block_ids": [[*told["block_ids"][0][:-1], 199_999]]},
    ),
    "another handle": (Verb.READ, lambda told: {**told, "sequence": told["sequence"] + 1}),
    "an extension given twice": (
        Verb.ALLOCATE,
        lambda told: {**told, "block_ids": [[*told["block_ids"][0], 1]]},
    ),
    "a sequence that is freed, and not known": (
        Verb.FREE,
        lambda told: {**told, "unknown": [] if told["unknown"] else ["it"]},
    ),
    "a hit that nobody computed": (
        Verb.LOOKUP,
        lambda told: {**told, "num_cached_tokens": told["num_cached_tokens"] + 16},
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name: str) -> None:
    log = drawn_log(random.Random(2), 600)
    assert complaints(log) == []
    (complaint,) = complaints(changed(log, *PLANTED[name]))
    assert "is not linearizable" in complaint


def test_a_stale_read_is_found() -> None:
    """One is told what another was told of the same sequence long before, and more was done since."""
    log = drawn_log(random.Random(3), 800)
    reads = [number for number, (call, _) in enumerate(log) if call.verb is Verb.READ]
    last = next(number for number in reversed(reads) if is_answered(log[number]))
    earlier = next(number for number in reads if log[number][0].body == log[last][0].body)
    (call, now), (_, before) = log[last], log[earlier]
    assert now is not None
    assert before is not None
    assert now.told != before.told
    log[last] = call, replace(now, status=before.status, body=before.body)
    (complaint,) = complaints(log)
    assert f"the history of {call.body['sequence_id']}" in complaint


def is_answered(entry: tuple[Call, Answer | None]) -> bool:
    return entry[1] is not None and entry[1].is_success
