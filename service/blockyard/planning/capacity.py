"""How many requests of full length run at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.planning.groups import Group
from blockyard.planning.host_pool import HostPool
from blockyard.planning.layers import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a plan serves.

    Attributes:
        max_concurrency: Requests of full length at a time.
        num_tokens: The same in tokens.
    """

    max_concurrency: float
    num_tokens: int


def capacity(
    groups: Sequence[Group], num_blocks: int, host_pool: HostPool | None, workload: Workload
) -> Capacity | None:
    """What ``num_blocks`` blocks, and the host's, serve; None where a request takes none.

    All groups take their blocks from one pool, so a request takes the sum over groups.
    """
    limits = []
    for is_host, num_pool_blocks in ((False, num_blocks), (True, host_pool.num_blocks if host_pool else 0)):
        num_needed = sum(group.max_blocks(workload) for group in groups if group.host_resident is is_host)
        if num_needed:
            limits.append(num_pool_blocks / num_needed)
    if not limits:
        return None
    max_concurrency = min(limits)
    return Capacity(max_concurrency=max_concurrency, num_tokens=int(max_concurrency * workload.max_model_len))
