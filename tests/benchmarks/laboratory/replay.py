"""Replaying a workload on a pool in process.

One after the other, a request's input is allocated, which publishes its blocks, and freed; outputs do not
count.
"""

from benchmarks.laboratory.workload import Workload
from blockyard.core.arithmetic import div_ceil
from blockyard.core.commands import Admission, Allocate, CreateLease, Free
from blockyard.core.config import Eviction, GroupConfig, PoolConfig, Publish
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Allocated

LEASE = LeaseId("laboratory")


def fits(num_tokens: int, block_size: int, num_blocks: int) -> bool:
    """Whether a pool of ``num_blocks``, the null block included, can ever hold a request."""
    return div_ceil(num_tokens, block_size) < num_blocks


def replay(workload: Workload, num_blocks: int, eviction: Eviction) -> int:
    """Tokens of ``workload`` that a pool of ``num_blocks``, the null block included, finds cached.

    Requests that it can never hold are skipped.
    """
    group = GroupConfig(kind="full_attention", block_size=workload.block_size)
    pool = Pool(
        PoolConfig.of(num_blocks=num_blocks, groups=[group], publish=Publish.ON_ALLOCATE, eviction=eviction)
    )
    pool.apply(CreateLease(lease_id=LEASE, holder="laboratory", ttl_ms=10**9), 0)
    name = SequenceId("request")
    free = Free(lease_id=LEASE, sequence_ids=[name])
    num_cached_tokens = 0
    for request in workload.requests:
        if not fits(request.num_tokens, workload.block_size, num_blocks):
            continue
        admission = Admission(
            sequence_id=name, num_tokens=request.num_tokens, block_hashes=request.block_hashes
        )
        allocated = pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)
        assert isinstance(allocated, Allocated)
        num_cached_tokens += allocated.num_cached_tokens or 0
        pool.apply(free, 0)
    return num_cached_tokens
