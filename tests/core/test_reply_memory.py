"""How many outcomes a pool and its leases keep for repeats: as many as its configuration says."""

import pytest

from blockyard.core.commands import AllocateBlocks, CreateLease, Idempotent
from blockyard.core.config import MAX_REPLIES, GroupConfig, PoolConfig, config_from_state, config_to_state
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import LeaseId
from blockyard.core.pool import Pool
from blockyard.core.replies import BlocksAllocated

LEASE = LeaseId("lease")


def config(**options: int) -> PoolConfig:
    return PoolConfig.of(num_blocks=100, groups=[GroupConfig(kind="full_attention", block_size=4)], **options)


def make_pool(**options: int) -> Pool:
    """A pool with a lease, under which a block each was allocated with the keys a to d."""
    pool = Pool(config(**options))
    pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000), 0)
    for key in "abcd":
        allocate(pool, key)
    return pool


def allocate(pool: Pool, key: str) -> list[int]:
    command = AllocateBlocks(lease_id=LEASE, num_blocks=1)
    reply = pool.apply(Idempotent(key=key, fingerprint=b"", command=command), 0)
    assert isinstance(reply, BlocksAllocated)
    return list(reply.block_ids)


def test_a_lease_keeps_its_last_outcomes_and_no_more() -> None:
    pool = make_pool(max_replies=3)
    assert [allocate(pool, key) for key in "bcd"] == [[2], [3], [4]]
    assert allocate(pool, "a") == [5]


def test_a_restored_pool_keeps_as_many_as_before() -> None:
    pool = Pool.restore(make_pool(max_replies=3).snapshot())
    assert allocate(pool, "e") == [5]
    assert [allocate(pool, key) for key in "cde"] == [[3], [4], [5]]
    assert allocate(pool, "b") == [6]


def test_what_was_written_before_there_was_a_choice_is_read_as_the_default() -> None:
    state = config_to_state(config())
    assert state.pop("max_replies") == 256
    assert config_from_state(state) == config()


@pytest.mark.parametrize("max_replies", [0, MAX_REPLIES + 1])
def test_a_choice_out_of_range_is_refused(max_replies: int) -> None:
    with pytest.raises(InvalidRequest, match="max_replies"):
        config(max_replies=max_replies)
