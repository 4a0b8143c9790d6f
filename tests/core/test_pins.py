"""What pins keep, and what they leave to others; worked by hand. Blocks of four tokens are 1, 2, 3, ..."""

import pytest

from blockyard.core.commands import (
    AllocateBlocks,
    CreatePin,
    DeletePin,
    ExpireLeases,
    FreeBlocks,
    RegisterWorker,
    RenewPin,
    ResetPrefixCache,
    Resume,
    SetQuota,
)
from blockyard.core.errors import (
    InsufficientBlocks,
    InvalidRequest,
    PinNotFound,
    PrefixNotCached,
    QuotaExceeded,
)
from blockyard.core.ids import NO_TENANT, PinId, TenantId, WorkerId
from blockyard.core.quota import Quota
from blockyard.core.replies import BlocksAllocated, CacheReset, LeasesExpired, Pinned
from core.worked_pool import LEASE, WorkedPool, group

PIN = PinId("pin")


def make_pool(*, shared: bool = True) -> WorkedPool:
    """Eight blocks: of a text, 1 to 3 are cached, and 4 and 5 for one tenant alone; all are free."""
    pool = WorkedPool(group("full_attention"), num_blocks=9, share_across_tenants=shared)
    pool.allocate("text", 12)
    pool.allocate("other", 8, skip_prefix_cache=True, tenant_only=True)
    pool.free("text")
    pool.free("other")
    return pool


def pin(
    pool: WorkedPool, num_tokens: int = 12, *, pin_id: PinId = PIN, ttl_ms: int = 500, hard: bool = False
) -> Pinned:
    command = CreatePin(pin_id=pin_id, ttl_ms=ttl_ms, hard=hard, block_hashes=pool.hashes(0, num_tokens))
    reply = pool.pool.apply(command, pool.now_ms)
    assert isinstance(reply, Pinned)
    return reply


def take(pool: WorkedPool, num_blocks: int) -> list[int]:
    reply = pool.pool.apply(AllocateBlocks(lease_id=LEASE, num_blocks=num_blocks), pool.now_ms)
    assert isinstance(reply, BlocksAllocated)
    assert pool.pool.audit().problems == []
    return reply.block_ids


def test_soft_pinned_blocks_are_taken_last_and_their_tail_first() -> None:
    pool = make_pool()
    assert take(pool, 8) == [6, 7, 8, 3, 2, 1, 5, 4]
    pool = make_pool()
    told = pin(pool)
    assert (told.num_tokens, told.num_cached_tokens, told.num_blocks) == (12, 12, 3)
    assert pool.pool.statistics().num_free_blocks == 8
    assert take(pool, 8) == [6, 7, 8, 5, 4, 3, 2, 1]


def test_what_is_cached_while_a_pin_lives_is_kept_as_well() -> None:
    pool = WorkedPool(group("full_attention"), num_blocks=9)
    assert pin(pool, 8).num_blocks == 0
    pool.allocate("text", 12)
    pool.free("text")
    assert pool.pool.statistics().num_soft_pinned_blocks == 2
    assert take(pool, 8) == [4, 5, 6, 7, 8, 3, 2, 1]


def test_blocks_that_no_pin_keeps_any_more_are_as_if_freed_now() -> None:
    pool = make_pool()
    pin(pool)
    pin(pool, 4, pin_id=PinId("shorter"))
    pool.pool.apply(DeletePin(pin_id=PIN), 0)
    assert pool.pool.statistics().num_soft_pinned_blocks == 1
    assert take(pool, 8) == [6, 7, 8, 5, 4, 3, 2, 1]
    pool.pool.apply(DeletePin(pin_id=PinId("shorter")), 0)
    assert pool.pool.store.soft_pins is None


def test_a_tenants_soft_pin_keeps_what_it_finds_itself() -> None:
    pool = make_pool(shared=False)
    command = CreatePin(tenant=TenantId("red"), pin_id=PIN, ttl_ms=500, block_hashes=pool.hashes(0, 12))
    told = pool.pool.apply(command, 0)
    assert isinstance(told, Pinned)
    assert (told.num_cached_tokens, told.num_blocks) == (0, 0)
    assert take(pool, 8) == [6, 7, 8, 3, 2, 1, 5, 4]


def test_a_hard_pin_holds_its_blocks_and_gives_them_back() -> None:
    pool = make_pool()
    told = pin(pool, 14, hard=True)  # two tokens of no full block
    assert (told.num_tokens, told.num_cached_tokens, told.num_blocks) == (12, 12, 3)
    statistics, audit = pool.pool.statistics(), pool.pool.audit()
    assert (statistics.num_held_blocks, statistics.num_hard_pinned_blocks, audit.num_held_blocks) == (3, 3, 3)
    assert [(held.pin_id, held.num_blocks) for held in audit.pins] == [(PIN, 3)]
    assert take(pool, 5) == [6, 7, 8, 5, 4]
    with pytest.raises(InsufficientBlocks):
        take(pool, 1)
    reset = pool.pool.apply(ResetPrefixCache(), 0)
    assert isinstance(reset, CacheReset)
    assert not reset.ok
    pool.pool.apply(DeletePin(pin_id=PIN), 0)
    assert take(pool, 3) == [3, 2, 1]


def test_a_hard_pin_is_all_or_nothing() -> None:
    pool = make_pool()
    before = pool.pool.snapshot()
    with pytest.raises(PrefixNotCached) as refused:
        pin(pool, 16, hard=True)
    assert refused.value.figures == {"num_tokens": 16, "num_cached_tokens": 12}
    assert pool.pool.snapshot() == before
    with pytest.raises(InvalidRequest, match="nothing to pin"):
        pin(pool, 3)


def test_nothing_is_held_where_nothing_is_cached() -> None:
    """Not even where a hit would begin a chunk, and need no blocks."""
    chunks = group("chunked_local_attention", attention_chunk_size=8)
    pool = WorkedPool(chunks, num_blocks=9, enable_prefix_caching=False)
    with pytest.raises(PrefixNotCached) as refused:
        pin(pool, hard=True)
    assert refused.value.figures == {"num_tokens": 12, "num_cached_tokens": 0}


def test_a_hard_pin_leaves_the_watermark_and_stays_within_the_quota() -> None:
    pool = WorkedPool(group("full_attention"), num_blocks=9, watermark_blocks=2)
    pool.allocate("text", 12)
    pool.free("text")
    raw = take(pool, 4)
    with pytest.raises(InsufficientBlocks):
        pin(pool, hard=True)
    pool.pool.apply(FreeBlocks(lease_id=LEASE, block_ids=raw), 0)
    pool.pool.apply(SetQuota(holder=NO_TENANT, quota=Quota(guaranteed_blocks=0, max_blocks=2, weight=1)), 0)
    with pytest.raises(QuotaExceeded):
        pin(pool, hard=True)
    pin(pool, 8, hard=True)
    assert pool.pool.tenant(NO_TENANT).num_held_blocks == 2
    assert pool.pool.audit().problems == []


def test_an_epoch_ends_hard_pins_and_leaves_soft_ones() -> None:
    pool = make_pool()
    pin(pool, hard=True)
    pin(pool, 8, pin_id=PinId("soft"))
    worker = RegisterWorker(worker_id=WorkerId("w"), rank=0, device="cpu", incarnation="new")
    pool.pool.apply(worker, 0)
    assert pool.pool.epoch == 2
    assert list(pool.pool.pins) == ["soft"]
    assert pool.pool.num_held_blocks == 0
    assert pool.pool.audit().problems == []


def test_pins_run_out_with_leases_and_are_nobodys_from_then_on() -> None:
    pool = make_pool()
    pin(pool, ttl_ms=500)
    pin(pool, pin_id=PinId("hard"), ttl_ms=400, hard=True)
    pool.pool.apply(RenewPin(pin_id=PIN, ttl_ms=700), 100)
    assert pool.pool.next_expiry_ms == 400
    with pytest.raises(PinNotFound):
        pool.pool.apply(RenewPin(pin_id=PinId("hard")), 400)
    expired = pool.pool.apply(ExpireLeases(), 400)
    assert isinstance(expired, LeasesExpired)
    assert (expired.pin_ids, expired.num_freed_blocks) == (["hard"], 3)
    pool.pool.apply(Resume(since_ms=400), 900)
    assert pool.pool.pins[PIN].expires_at_ms == 1_600
    assert pool.pool.audit().problems == []


def test_a_state_that_one_lease_goes_on_from_is_not_held() -> None:
    """It is overwritten by then."""
    pool = WorkedPool(
        group("full_attention", 8), group("mamba", 8, mamba_cache_mode="align"), hash_block_size=4
    )
    pool.allocate("edge", 15, max_new_tokens=12)  # its state after 12 tokens can be found
    assert pool.pool.lookup(num_tokens=16, block_hashes=pool.hashes(0, 16)).num_cached_tokens == 12
    with pytest.raises(PrefixNotCached) as refused:
        pin(pool, 12, hard=True)
    assert refused.value.figures == {"num_tokens": 8, "num_cached_tokens": 0}


def test_a_hard_pin_keeps_what_a_draft_needs_for_its_hit() -> None:
    pool = WorkedPool(
        group("full_attention"), group("sliding_window", sliding_window=5, is_draft=True), num_blocks=30
    )
    pool.allocate("text", 16)
    pool.free("text")
    told = pin(pool, 16, hard=True)
    assert (told.num_tokens, told.num_cached_tokens) == (16, 12)
    take(pool, pool.pool.statistics().num_free_blocks)
    found = pool.pool.lookup(num_tokens=17, block_hashes=pool.hashes(0, 16))
    assert found.num_cached_tokens == 12
