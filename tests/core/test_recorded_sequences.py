"""Recorded calls, answered value by value: by the pool, and by the naive pool that it is held against."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from blockyard.core.commands import (
    Admission,
    Allocate,
    CreateLease,
    DeleteLease,
    Free,
    ResetPrefixCache,
    Step,
    StepExtend,
)
from blockyard.core.config import PoolConfig
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import LeaseId, SequenceHandle, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Admitted, Allocated, CacheReset, Freed, Refused, Stepped
from core.allocator import Allocator
from core.naive_pool import NaivePool
from core.recorded_cases import Operation, RecordedCase, recorded_cases

MakePool: TypeAlias = Callable[[PoolConfig], Allocator]

LEASE = LeaseId("recorded")
NOW_MS = 0

CASES = [*recorded_cases("sequences.json"), *recorded_cases("kinds.json")]

every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
both_pools = pytest.mark.parametrize("make_pool", [Pool, NaivePool], ids=["pool", "naive"])


def test_all_recorded_cases_are_tried() -> None:
    assert len(recorded_cases("sequences.json")) == 15
    assert len(recorded_cases("kinds.json")) == 40


@every_case
@both_pools
def test_single_calls_are_answered_as_recorded(make_pool: MakePool, case: RecordedCase) -> None:
    pool = make_leased_pool(make_pool, case.config)
    for number, operation in enumerate(case.operations):
        got = answer_call(pool, operation)
        assert got == recorded_answer(operation, got), f"operation {number}"
    assert_all_comes_back(pool, case.config)


@every_case
@both_pools
def test_steps_are_answered_as_recorded(make_pool: MakePool, case: RecordedCase) -> None:
    pool = make_leased_pool(make_pool, case.config)
    handles: dict[SequenceId, SequenceHandle] = {}
    for number, operation in enumerate(case.operations):
        got = answer_step(pool, operation, handles)
        assert got == recorded_answer(operation, got), f"operation {number}"
    assert_all_comes_back(pool, case.config)


def make_leased_pool(make_pool: MakePool, config: PoolConfig) -> Allocator:
    pool = make_pool(config)
    pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000), NOW_MS)
    return pool


def assert_all_comes_back(pool: Allocator, config: PoolConfig) -> None:
    if isinstance(pool, Pool):
        assert pool.audit().problems == []
    pool.apply(DeleteLease(lease_id=LEASE), NOW_MS)
    if isinstance(pool, Pool):
        assert pool.audit().problems == []
        assert pool.statistics().num_free_blocks == config.num_blocks - 1


def recorded_answer(operation: Operation, got: Operation) -> Operation:
    """What was recorded, and of the rest of an answer what was got: a record names what matters."""
    return {**got, **operation["expected"]}


def answer_call(pool: Allocator, operation: Operation) -> Operation:
    """The answer to one recorded operation made as a call of its own."""
    match operation["op"]:
        case "allocate":
            try:
                reply = pool.apply(Allocate(lease_id=LEASE, admission=admission_of(operation)), NOW_MS)
            except InsufficientBlocks as error:
                return {"error": error.code, "num_free_blocks": error.figures["num_free_blocks"]}
            assert isinstance(reply, Allocated)
            return granted(pool, operation, reply, reply)
        case "free":
            reply = pool.apply(Free(lease_id=LEASE, sequence_ids=[operation["sequence_id"]]), NOW_MS)
            assert isinstance(reply, Freed)
            assert reply.unknown == []
            return {"num_free_blocks": reply.num_free_blocks}
        case _:
            return answer_question(pool, operation)


def answer_step(
    pool: Allocator, operation: Operation, handles: dict[SequenceId, SequenceHandle]
) -> Operation:
    """The answer to one recorded operation made as a step."""
    sequence_id = operation.get("sequence_id", "")
    handle = handles.get(sequence_id)
    match operation["op"]:
        case "allocate" if handle is None:
            reply = run_step(pool, Step(lease_id=LEASE, admit=[admission_of(operation)]))
            (admitted,) = reply.admit
            if isinstance(admitted, Refused):
                assert admitted.num_free_blocks == reply.num_free_blocks
                return {"error": admitted.code, "num_free_blocks": reply.num_free_blocks}
            handles[sequence_id] = admitted.sequence
            return granted(pool, operation, admitted, reply)
        case "allocate":
            assert handle is not None
            return extend_by_step(pool, operation, handle)
        case "free":
            reply = run_step(pool, Step(lease_id=LEASE, free=[handles.pop(sequence_id)]))
            return {"num_free_blocks": reply.num_free_blocks}
        case _:
            return answer_question(pool, operation)


def extend_by_step(pool: Allocator, operation: Operation, handle: SequenceHandle) -> Operation:
    admission = admission_of(operation)
    assert not admission.full_sequence_must_fit
    assert admission.max_new_tokens is not None
    num_computed = pool.sequence(admission.sequence_id).num_computed_tokens
    num_new = min(admission.num_tokens - num_computed, admission.max_new_tokens)
    extend = StepExtend(
        sequences=[handle],
        num_tokens=[num_computed + num_new],
        num_lookahead_tokens=admission.num_lookahead_tokens,
        block_hashes={handle: admission.block_hashes},
    )
    reply = run_step(pool, Step(lease_id=LEASE, extend=extend))
    if reply.extend.insufficient:
        assert reply.extend.insufficient == [handle]
        return {"error": InsufficientBlocks.code, "num_free_blocks": reply.num_free_blocks}
    assert reply.extend.sequences == [handle]
    (block_ids,) = reply.extend.block_ids
    admitted = Admitted(sequence=handle, num_cached_tokens=0, num_new_tokens=num_new, block_ids=block_ids)
    return granted(pool, operation, admitted, reply)


def run_step(pool: Allocator, step: Step) -> Stepped:
    reply = pool.apply(step, NOW_MS)
    assert isinstance(reply, Stepped)
    return reply


def answer_question(pool: Allocator, operation: Operation) -> Operation:
    if operation["op"] == "lookup":
        found = pool.lookup(num_tokens=operation["num_tokens"], block_hashes=hashes_of(operation))
        return {"num_cached_tokens": found.num_cached_tokens, "block_ids": found.block_ids}
    assert operation["op"] == "reset_prefix_cache"
    reply = pool.apply(ResetPrefixCache(), NOW_MS)
    assert isinstance(reply, CacheReset)
    return {"ok": reply.ok}


def granted(
    pool: Allocator, operation: Operation, admitted: Admitted | Allocated, reply: Allocated | Stepped
) -> Operation:
    answer = {
        "num_new_tokens": admitted.num_new_tokens,
        "block_ids": admitted.block_ids,
        "copies": reply.copies,
        "num_free_blocks": reply.num_free_blocks,
        "table": pool.sequence(operation["sequence_id"]).block_ids,
    }
    if admitted.num_cached_tokens is not None:
        answer["num_cached_tokens"] = admitted.num_cached_tokens
    return answer


def admission_of(operation: Operation) -> Admission:
    asked = {name: value for name, value in operation.items() if name not in {"op", "expected"}}
    return Admission(**{**asked, "block_hashes": hashes_of(operation)})


def hashes_of(operation: Operation) -> list[bytes]:
    return [bytes.fromhex(block_hash) for block_hash in operation["block_hashes"]]
