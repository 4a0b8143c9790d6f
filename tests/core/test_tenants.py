"""Tenants in a pool: none sees, touches or starves another, and what is promised is kept."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from blockyard.core.charges import Charges
from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    CreateLease,
    DeleteLease,
    Free,
    Idempotent,
    RegisterWorker,
    SetQuota,
    Step,
    StepExtend,
)
from blockyard.core.compiled import is_compiled
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InsufficientBlocks, InvalidRequest, QuotaExceeded, SequenceNotFound
from blockyard.core.extra_keys import Extras
from blockyard.core.ids import NO_TENANT, BlockHash, LeaseId, SequenceHandle, SequenceId, TenantId, WorkerId
from blockyard.core.pool import Pool
from blockyard.core.quota import Quota
from blockyard.core.replies import Allocated, LeaseGranted, Stepped
from blockyard.core.tenant_hash import tenant_hashes
from core.tenant_machine import TenantMachine
from rounds import NIGHTLY, run_rounds, seeded

RED, BLUE = TenantId("red"), TenantId("blue")

RUNS = settings(
    max_examples=2_000 if NIGHTLY else 80,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

MUST_HAPPEN = (
    "given",
    "insufficient_blocks",
    "quota_exceeded",
    "due",
    "quotas",
    "too much is promised",
    "guarantees that come too late",
    "hits across tenants",
    "expired",
)


def test_guarantees_hold_and_books_add_up_whatever_tenants_do() -> None:
    def run(round_number: int) -> Counter[str]:
        class Machine(TenantMachine):
            coverage: ClassVar[Counter[str]] = Counter()

        run_state_machine_as_test(seeded(Machine, round_number), settings=RUNS)
        return Machine.coverage

    run_rounds(run, MUST_HAPPEN)


class ForgetsWhatIsDue(Charges):
    """Gives away what is guaranteed to others."""

    __slots__ = ()

    def num_available(self, num_free: int, num_kept: int) -> int:
        return max(num_free - num_kept, 0)


class ChargesOneOfSeveral(Charges):
    """Blocks held in common are charged to whoever held them first."""

    __slots__ = ()

    def touch(self, blocks: list[int], counts: Any) -> None:
        free = [block for block in blocks if block and self._owners[block] == 0]
        super().touch(free, counts)


class KnowsNoMaximum(Charges):
    """Gives without end."""

    __slots__ = ()

    def require(self, num_blocks: int, num_free: int, **rest: int) -> None:
        quota = self.acting.quota
        self.acting.quota = replace(quota, max_blocks=None)
        try:
            super().require(num_blocks, num_free, **rest)
        finally:
            self.acting.quota = quota


@pytest.mark.skipif(is_compiled(), reason="bugs are planted by swapping classes")
@pytest.mark.parametrize("bug", [ForgetsWhatIsDue, ChargesOneOfSeveral, KnowsNoMaximum])
def test_the_machine_finds_a_planted_bug(bug: type[Charges]) -> None:
    class Machine(TenantMachine):
        coverage: ClassVar[Counter[str]] = Counter()

        @staticmethod
        def plant(pool: Pool) -> None:
            pool.tenants.of(RED)
            pool.charge_if_needed()
            charges: Any = pool.store.charges
            charges.__class__ = bug

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Machine,
            settings=settings(
                RUNS, max_examples=500, derandomize=True, database=None, phases=[Phase.generate]
            ),
        )


# One claim each


def make_pool(num_blocks: int = 11, **options: Any) -> Pool:
    """Ten blocks of two tokens to be had, and a lease of each tenant under its name."""
    pool = Pool(
        PoolConfig.of(
            num_blocks=num_blocks,
            groups=[GroupConfig(kind="full_attention", block_size=2)],
            **{"publish": Publish.ON_ALLOCATE, **options},
        )
    )
    for tenant in (RED, BLUE):
        pool.apply(CreateLease(tenant=tenant, lease_id=LeaseId(tenant), holder="test", ttl_ms=1_000), 0)
    return pool


def hashes(*numbers: int) -> list[BlockHash]:
    return [number.to_bytes(32, "big") for number in numbers]


def allocate(pool: Pool, tenant: TenantId, name: str, num_tokens: int, **content: Any) -> Allocated:
    admission = Admission(sequence_id=SequenceId(name), num_tokens=num_tokens, **content)
    reply = pool.apply(Allocate(tenant=tenant, lease_id=LeaseId(tenant), admission=admission), 0)
    assert isinstance(reply, Allocated)
    return reply


def take(pool: Pool, tenant: TenantId, num_blocks: int, **options: Any) -> None:
    pool.apply(AllocateBlocks(tenant=tenant, lease_id=LeaseId(tenant), num_blocks=num_blocks, **options), 0)


def set_quota(pool: Pool, tenant: TenantId, **quota: int) -> None:
    pool.apply(SetQuota(holder=tenant, quota=Quota(**quota)), 0)


@pytest.mark.parametrize("content", [{"block_hashes": hashes(1, 2)}, {"token_ids": [1, 2, 3, 4]}])
def test_tenants_do_not_find_each_others_blocks(content: dict[str, Any]) -> None:
    pool = make_pool()
    allocate(pool, RED, "a", 5, **content)
    assert allocate(pool, RED, "b", 5, **content).num_cached_tokens == 4
    assert allocate(pool, BLUE, "a", 5, **content).num_cached_tokens == 0
    assert pool.lookup(num_tokens=5, tenant=BLUE, **content).num_cached_tokens == 4
    assert pool.lookup(num_tokens=5, **content).num_cached_tokens == 0


def test_whoever_sends_anothers_hashes_as_they_are_kept_finds_nothing() -> None:
    pool = make_pool()
    allocate(pool, RED, "a", 5, block_hashes=hashes(1, 2))
    kept = tenant_hashes(hashes(1, 2), RED)
    assert [block_hash for block_hash in pool.store.hashes if block_hash] == kept
    assert pool.lookup(num_tokens=5, block_hashes=kept).num_cached_tokens == 4  # an operator sees all
    assert pool.lookup(num_tokens=5, block_hashes=kept, tenant=BLUE).num_cached_tokens == 0


def test_short_hashes_of_another_are_not_found_by_trying_all() -> None:
    pool = make_pool()
    allocate(pool, RED, "a", 3, block_hashes=[BlockHash(b"x")])
    assert pool.lookup(num_tokens=3, block_hashes=[BlockHash(b"x")], tenant=RED).num_cached_tokens == 2
    for byte in range(256):
        tried = [BlockHash(bytes([byte]))]
        assert pool.lookup(num_tokens=3, block_hashes=tried, tenant=BLUE).num_cached_tokens == 0
        assert pool.lookup(num_tokens=3, block_hashes=tried).num_cached_tokens == 0


def test_a_pool_that_shares_lets_tenants_find_each_others_blocks() -> None:
    pool = make_pool(share_across_tenants=True)
    allocate(pool, RED, "a", 5, block_hashes=hashes(1, 2))
    assert allocate(pool, BLUE, "a", 5, block_hashes=hashes(1, 2)).num_cached_tokens == 4


@pytest.mark.parametrize(
    "content",
    [
        {"block_hashes": hashes(1, 2), "tenant_only": True},
        {"token_ids": [1, 2, 3, 4], "extras": Extras(cache_salt="salt")},
    ],
)
def test_a_salt_never_crosses_tenants(content: dict[str, Any]) -> None:
    pool = make_pool(share_across_tenants=True)
    allocate(pool, RED, "a", 5, **content)
    assert allocate(pool, RED, "b", 5, **content).num_cached_tokens == 4
    assert allocate(pool, BLUE, "a", 5, **content).num_cached_tokens == 0


def test_tenants_may_use_the_same_names_and_keys() -> None:
    pool = make_pool()
    allocate(pool, RED, "same", 4)
    allocate(pool, BLUE, "same", 6)
    assert pool.sequence(SequenceId("same"), RED).num_tokens == 4
    assert pool.sequence(SequenceId("same"), BLUE).num_tokens == 6
    with pytest.raises(SequenceNotFound):
        pool.sequence(SequenceId("same"))
    granted = []
    for tenant in (RED, BLUE):
        command = CreateLease(tenant=tenant, lease_id=LeaseId(f"{tenant}'s"), holder="", ttl_ms=1)
        reply = pool.apply(Idempotent(key="same", fingerprint=b"same", command=command), 0)
        assert isinstance(reply, LeaseGranted)
        granted.append(reply.lease_id)
    assert granted == ["red's", "blue's"]


def test_a_tenant_at_its_maximum_is_told_so_with_figures() -> None:
    pool = make_pool()
    set_quota(pool, RED, max_blocks=4)
    take(pool, RED, 3)
    with pytest.raises(QuotaExceeded) as refused:
        take(pool, RED, 2)
    assert refused.value.figures == {"num_required_blocks": 2, "num_held_blocks": 3, "num_quota_blocks": 4}
    take(pool, RED, 1)


def test_cached_blocks_of_others_go_for_a_tenant_below_its_guarantee() -> None:
    pool = make_pool()
    set_quota(pool, BLUE, guaranteed_blocks=10)
    set_quota(pool, BLUE, guaranteed_blocks=6)
    allocate(pool, RED, "a", 8, block_hashes=hashes(1, 2, 3, 4))
    with pytest.raises(InsufficientBlocks) as refused:
        take(pool, RED, 1)
    assert refused.value.figures["num_free_blocks"] == 0
    pool.apply(Free(tenant=RED, lease_id=LeaseId("red"), sequence_ids=[SequenceId("a")]), 0)
    assert pool.store.num_cached_blocks == 4
    take(pool, BLUE, 10)
    assert pool.store.num_cached_blocks == 0


def test_a_guarantee_holds_against_those_who_wait_and_the_watermark() -> None:
    pool = make_pool(watermark_blocks=3)
    set_quota(pool, BLUE, guaranteed_blocks=4)
    take(pool, RED, 6)
    take(pool, BLUE, 3, num_reserved_blocks=9)
    allocate(pool, BLUE, "a", 2)
    assert pool.tenant(BLUE).num_held_blocks == 4


def test_no_more_is_guaranteed_than_there_is() -> None:
    pool = make_pool()
    set_quota(pool, BLUE, guaranteed_blocks=7)
    with pytest.raises(InvalidRequest, match="must be 0 to 3"):
        set_quota(pool, RED, guaranteed_blocks=4)
    with pytest.raises(InvalidRequest, match="below guaranteed_blocks"):
        set_quota(pool, RED, guaranteed_blocks=2, max_blocks=1)
    with pytest.raises(InvalidRequest, match="weight"):
        set_quota(pool, RED, weight=0)
    assert pool.tenant(RED).guaranteed_blocks == 0


def test_a_pool_without_tenants_charges_nobody() -> None:
    pool = Pool(PoolConfig.of(num_blocks=11, groups=[GroupConfig(kind="full_attention", block_size=2)]))
    pool.apply(CreateLease(lease_id=LeaseId("l"), holder="", ttl_ms=1_000), 0)
    pool.apply(AllocateBlocks(lease_id=LeaseId("l"), num_blocks=3), 0)
    assert pool.store.charges is None
    assert pool.tenant(NO_TENANT).num_held_blocks == 3
    pool.apply(CreateLease(tenant=RED, lease_id=LeaseId("r"), holder="", ttl_ms=1_000), 0)
    assert pool.store.charges is not None
    assert pool.tenant(NO_TENANT).num_held_blocks == 3
    assert pool.audit().ok


def test_what_waits_is_not_remembered_as_refused() -> None:
    pool = make_pool()
    take(pool, RED, 10)
    command = AllocateBlocks(tenant=BLUE, lease_id=LeaseId("blue"), num_blocks=2, is_waiting=True)
    waiting = Idempotent(key="k", fingerprint=b"f", command=command)
    with pytest.raises(InsufficientBlocks):
        pool.apply(waiting, 0)
    pool.apply(DeleteLease(tenant=RED, lease_id=LeaseId("red")), 0)
    first = pool.apply(waiting, 0)
    assert pool.apply(waiting, 0) == first


def test_the_audit_finds_a_block_that_is_charged_to_another() -> None:
    pool = make_pool()
    take(pool, RED, 3)
    charges: Any = pool.store.charges
    charges._owners[1] = pool.tenants.of(BLUE).number
    assert "charged" in pool.audit().problems[0]


def test_a_prompt_that_repeats_a_hash_gives_its_blocks_back() -> None:
    pool = make_pool()
    allocate(pool, RED, "first", 2, block_hashes=hashes(1))
    second = allocate(pool, RED, "second", 5, block_hashes=hashes(1, 1))
    assert second.block_ids[0][0] == second.block_ids[0][1]
    pool.apply(DeleteLease(tenant=RED, lease_id=LeaseId(RED)), 0)
    assert pool.audit().problems == []
    assert pool.tenant(RED).num_held_blocks == 0


def test_a_worker_of_an_operator_serves_all_tenants() -> None:
    pool = make_pool()
    pool.apply(RegisterWorker(worker_id=WorkerId("w"), rank=0, device="cpu", incarnation="1"), 0)
    take(pool, RED, 1)
    take(pool, BLUE, 1)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_tenant_over_its_maximum_goes_on_in_the_blocks_that_it_has(is_restored: bool) -> None:
    """A restored pool has forgotten how far sequences can go on, and works it out: the answer is the same."""
    pool = make_pool()
    allocate(pool, RED, "a", 5)
    set_quota(pool, RED, max_blocks=1)
    if is_restored:
        pool = Pool.restore(pool.snapshot())
    step = Step(
        tenant=RED, lease_id=LeaseId(RED), extend=StepExtend(sequences=[SequenceHandle(1)], num_tokens=[6])
    )
    stepped = pool.apply(step, 0)
    assert isinstance(stepped, Stepped)
    assert stepped.extend.insufficient == []
    assert allocate(pool, RED, "a", 6).block_ids == [[]]
    with pytest.raises(QuotaExceeded):
        allocate(pool, RED, "a", 7)
