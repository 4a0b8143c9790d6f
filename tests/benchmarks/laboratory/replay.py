"""Replaying a workload on a pool in process.

One after the other, a request's input is allocated, which publishes its blocks, and freed; outputs do not
count.
"""

from dataclasses import dataclass

from benchmarks.laboratory.workload import Workload
from blockyard.core.arithmetic import div_ceil
from blockyard.core.commands import Admission, Allocate, CreateLease, Free
from blockyard.core.config import Eviction, GroupConfig, PoolConfig, Publish
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Allocated

LEASE = LeaseId("laboratory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay.

    Attributes:
        num_cached_tokens: Of all inputs, found cached.
        num_skipped: Requests that need more blocks than there are.
    """

    num_cached_tokens: int
    num_skipped: int


def fits(num_tokens: int, block_size: int, num_blocks: int) -> bool:
    """Whether a pool of ``num_blocks``, the null block included, can ever hold a request."""
    return div_ceil(num_tokens, block_size) < num_blocks


def replay(workload: Workload, num_blocks: int, eviction: Eviction) -> Replayed:
    """What a pool of ``num_blocks``, the null block included, caches of ``workload``."""
    group = GroupConfig(kind="full_attention", block_size=workload.block_size)
    pool = Pool(
        PoolConfig.of(num_blocks=num_blocks, groups=[group], publish=Publish.ON_ALLOCATE, eviction=eviction)
    )
    pool.apply(CreateLease(lease_id=LEASE, holder="laboratory", ttl_ms=10**9), 0)
    name = SequenceId("request")
    free = Free(lease_id=LEASE, sequence_ids=[name])
    num_cached = num_skipped = 0
    for request in workload.requests:
        if not fits(request.num_tokens, workload.block_size, num_blocks):
            num_skipped += 1
            continue
        admission = Admission(
            sequence_id=name, num_tokens=request.num_tokens, block_hashes=request.block_hashes
        )
        allocated = pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)
        assert isinstance(allocated, Allocated)
        num_cached += allocated.num_cached_tokens or 0
        pool.apply(free, 0)
    return Replayed(num_cached_tokens=num_cached, num_skipped=num_skipped)
