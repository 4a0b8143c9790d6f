"""What is restored from a snapshot shares nothing with it that can change."""

import copy
from collections.abc import Callable

import cbor2
import pytest

from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    Command,
    Commit,
    CreateLease,
    CreatePin,
    DeleteLease,
    DeletePin,
    Free,
    FreeBlocks,
    Idempotent,
    RenewPin,
    ResetPrefixCache,
    Step,
)
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NO_TENANT, LeaseId, PinId, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Reply
from core.allocator import plain
from core.worked_pool import WorkedPool, group

LEASE, OTHER_LEASE = LeaseId("lease"), LeaseId("other")
SOFT_PIN, HARD_PIN = PinId("soft"), PinId("hard")


def allocate(name: str, num_tokens: int, *token_ids: int) -> Allocate:
    admission = Admission(sequence_id=SequenceId(name), num_tokens=num_tokens, token_ids=token_ids)
    return Allocate(lease_id=LEASE, admission=admission)


def keyed(key: str, command: Allocate | AllocateBlocks | CreateLease) -> Idempotent:
    return Idempotent(key=key, fingerprint=b"", command=command)


BEGINNING: list[Command] = [
    CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000),
    keyed("other", CreateLease(lease_id=OTHER_LEASE, holder="test", ttl_ms=1_000)),
    allocate("ended", 9, *range(9)),
    Free(lease_id=LEASE, sequence_ids=[SequenceId("ended")]),
    allocate("live", 9, *range(9)),
    allocate("twice", 4, *range(4)),  # too short for a hit: its block is cached a second time
    keyed("raw", AllocateBlocks(lease_id=LEASE, num_blocks=2)),
    CreatePin(pin_id=SOFT_PIN, ttl_ms=1_000, token_ids=range(8)),
    CreatePin(pin_id=HARD_PIN, ttl_ms=1_000, token_ids=range(8), hard=True),
    Step(lease_id=LEASE, step_id=1, admit=[Admission(sequence_id=SequenceId("stepped"), num_tokens=5)]),
]
"""Leases, sequences, raw blocks, kept replies, pins, cached blocks held and free: something of all there can
be."""

GOING_ON: list[Command] = [
    allocate("live", 13, *range(9, 13)),
    Commit(lease_id=LEASE, sequence_id=SequenceId("twice"), num_computed_tokens=4),
    allocate("new", 9, *range(9)),
    Free(lease_id=LEASE, sequence_ids=[SequenceId("stepped")]),
    FreeBlocks(lease_id=LEASE, block_ids=[9]),
    keyed("raw again", AllocateBlocks(lease_id=OTHER_LEASE, num_blocks=3)),
    keyed("third", CreateLease(lease_id=LeaseId("third"), holder="test", ttl_ms=1_000)),
    Step(lease_id=LEASE, step_id=2),
    DeleteLease(lease_id=OTHER_LEASE),
    DeleteLease(lease_id=LEASE),
    RenewPin(pin_id=SOFT_PIN),
    DeletePin(pin_id=HARD_PIN),
    DeletePin(pin_id=SOFT_PIN),
    ResetPrefixCache(),
]
"""Changes all of that."""


def make_busy_pool() -> Pool:
    config = PoolConfig(
        num_blocks=24,
        groups=(
            GroupConfig(kind="full_attention", block_size=4),
            GroupConfig(kind="sliding_window", block_size=4, sliding_window=5),
        ),
        scheduler_block_size=4,
        hash_block_size=4,
        publish=Publish.ON_ALLOCATE,
        hash_seed="seed",
    )
    pool = Pool(config)
    apply_all(pool, BEGINNING)
    return pool


def apply_all(pool: Pool, commands: list[Command]) -> list[Reply]:
    return [pool.apply(command, now_ms) for now_ms, command in enumerate(commands, 10)]


def through_cbor(state: dict[str, object]) -> dict[str, object]:
    decoded = cbor2.loads(cbor2.dumps(state))
    assert isinstance(decoded, dict)
    return decoded


def as_it_is(state: dict[str, object]) -> dict[str, object]:
    return state


def test_a_pool_that_goes_on_does_not_touch_its_snapshot() -> None:
    pool = make_busy_pool()
    snapshot = pool.snapshot()
    kept = cbor2.dumps(snapshot)
    apply_all(pool, GOING_ON)
    assert cbor2.dumps(snapshot) == kept


def test_two_pools_restored_from_one_snapshot_do_not_touch_each_other() -> None:
    snapshot = make_busy_pool().snapshot()
    kept = cbor2.dumps(snapshot)
    one, other = Pool.restore(snapshot), Pool.restore(snapshot)
    apply_all(one, GOING_ON)
    assert cbor2.dumps(other.snapshot()) == kept
    assert cbor2.dumps(snapshot) == kept
    assert other.audit().problems == []


@pytest.mark.parametrize("carried", [as_it_is, through_cbor])
def test_a_restored_pool_goes_on_as_the_first_one_does(
    carried: Callable[[dict[str, object]], dict[str, object]],
) -> None:
    pool = make_busy_pool()
    restored = Pool.restore(carried(pool.snapshot()))
    assert plain(apply_all(restored, GOING_ON)) == plain(apply_all(pool, GOING_ON))
    assert restored.snapshot() == pool.snapshot()


def make_pool_of_states() -> WorkedPool:
    """A state about to be overwritten, copies to be made, a state that another was copied from."""
    pool = WorkedPool(
        group("full_attention", 8),
        group("mamba", 8, mamba_cache_mode="align", num_speculative_blocks=1),
        hash_block_size=4,
    )
    pool.allocate("edge", 15, max_new_tokens=12)
    pool.allocate("copied", 15)
    return pool


@pytest.mark.parametrize("carried", [as_it_is, through_cbor])
def test_states_and_copies_are_restored(
    carried: Callable[[dict[str, object]], dict[str, object]],
) -> None:
    pool, other = make_pool_of_states(), make_pool_of_states()
    assert [len(lease.copies) for lease in pool.pool.leases.values()] == [2]
    edge = pool.pool.sequences.get(NO_TENANT, SequenceId("edge"))
    assert edge is not None
    assert [table.edge_state for table in edge.tables] == [None, 1]
    snapshot = carried(pool.pool.snapshot())
    other.pool = Pool.restore(snapshot)
    assert other.pool.snapshot() == pool.pool.snapshot()
    assert other.pool.audit().problems == []
    for each in (pool, other):
        each.allocate("edge", 17)
        each.allocate("copied", 30)
        each.allocate("copied", 31)
        each.allocate("new", 17)
        each.free("edge")
    assert other.pool.snapshot() == pool.pool.snapshot()


@pytest.mark.parametrize("number", [0, 2, 6])
def test_a_snapshot_of_another_format_is_refused(number: int) -> None:
    with pytest.raises(InvalidRequest, match="this version reads format 5"):
        Pool.restore({**make_busy_pool().snapshot(), "format": number})


def test_a_snapshot_from_before_there_were_tenants_forks_and_pins_is_read() -> None:
    pool = make_busy_pool()
    for pin_id in (SOFT_PIN, HARD_PIN):
        pool.apply(DeletePin(pin_id=pin_id), 100)
    snapshot = pool.snapshot()
    earlier = copy.deepcopy(snapshot)
    earlier["format"] = 3
    del earlier["pins"]
    (nobody,) = earlier.pop("tenants")
    earlier["replies"] = nobody["replies"]
    del earlier["config"]["share_across_tenants"]
    for lease in earlier["leases"]:
        del lease["tenant"]
    for sequence in earlier["sequences"]:
        del sequence["scope"], sequence["num_forked_tokens"]
    for store in earlier["stores"]:
        del store["open_forks"]
    del earlier["counters"]["num_forked_sequences"]
    assert earlier["leases"]
    assert earlier["sequences"]
    assert Pool.restore(earlier).snapshot() == snapshot
