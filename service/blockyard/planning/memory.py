"""Does one request of full length fit, and which is the longest that does?

Block 0, the null block, is never handed out: a rank with room for n blocks serves requests from n - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.errors import InsufficientMemory, NoMemory
from blockyard.planning.groups import Group
from blockyard.planning.host_pool import HostPool
from blockyard.planning.placement import Placement
from blockyard.planning.request import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """One rank's memory, and what a request takes of it.

    Attributes:
        rank: Its number.
        placement: Of its layers, at least one.
        request: What is planned.
        available_bytes: For blocks, the null block included.
    """

    rank: int
    placement: Placement
    request: PlanRequest
    available_bytes: int

    @classmethod
    def of(cls, rank: int, placement: Placement, request: PlanRequest) -> "RankMemory":
        """The memory that the rank reports, or that of the blocks that are asked instead."""
        available = request.ranks[rank].available_bytes
        if request.num_blocks_override is not None:
            available = request.num_blocks_override * placement.bytes_per_block
        return cls(rank=rank, placement=placement, request=request, available_bytes=available)

    @property
    def num_blocks(self) -> int:
        """Blocks that fit, the null block included."""
        return self.available_bytes // self.placement.bytes_per_block

    @property
    def usable_bytes(self) -> int:
        """Memory beside the null block's."""
        return self.available_bytes - self.placement.bytes_per_block

    def needed_bytes(self, max_model_len: int) -> int:
        """Memory of all the blocks that one request of ``max_model_len`` tokens holds, at most at a time."""
        workload = self.request.workload(max_model_len)
        num_blocks = sum(group.max_blocks(workload) for group in self.placement.device_groups)
        return num_blocks * self.placement.bytes_per_block

    def fits(self, max_model_len: int) -> bool:
        """Whether one request of ``max_model_len`` tokens fits."""
        return self.needed_bytes(max_model_len) <= self.usable_bytes and self._host_fits(max_model_len)

    def longest_model_len(self, at_most: int) -> int:
        """The most tokens, up to ``at_most``, that one request can have; 0 if not even one fits."""
        low, high = 0, at_most
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def no_memory(self) -> NoMemory:
        """The refusal of a rank that has room for the null block at most."""
        bytes_per_block = self.placement.bytes_per_block
        return NoMemory(
            f"rank {self.rank}: {self.available_bytes} bytes are available, too few for the null block and "
            f"one more of {bytes_per_block} bytes each: {self._raise_to(2 * bytes_per_block)}",
            {"rank": self.rank, "available_bytes": self.available_bytes, "bytes_per_block": bytes_per_block},
        )

    def insufficient(self, max_model_len: int, longest: int) -> InsufficientMemory:
        """The refusal of a rank that does not hold ``max_model_len`` tokens; all ranks hold ``longest``."""
        usable, needed = self.usable_bytes, self.needed_bytes(max_model_len)
        shorter = f"; or lower max_model_len to {longest}" if longest else ""
        return InsufficientMemory(
            f"rank {self.rank}: a request of {max_model_len} tokens needs {needed} bytes, and {usable} are "
            f"left beside the null block: {self._raise_to(needed + self.placement.bytes_per_block)}{shorter}",
            {
                "rank": self.rank,
                "needed_bytes": needed,
                "available_bytes": usable,
                "estimated_max_model_len": self.longest_model_len(max_model_len),
                "longest_model_len": longest,
            },
        )

    def host_pools(self) -> list[tuple[Group, HostPool]]:
        """The blocks of the rank's layers whose pages lie in host memory."""
        sparse_host = self.request.sparse_host
        if sparse_host is None:
            return []
        return [
            (group, HostPool.of(group, sparse_host)) for group in self.placement.host_groups if group.layers
        ]

    def _host_fits(self, max_model_len: int) -> bool:
        workload = self.request.workload(max_model_len)
        return all(pool.fits(group, workload) for group, pool in self.host_pools())

    def _raise_to(self, num_bytes: int) -> str:
        """What to do for ``num_bytes`` to be available."""
        if self.request.num_blocks_override is not None:
            return f"raise num_blocks_override to {div_ceil(num_bytes, self.placement.bytes_per_block)}"
        return f"raise available_memory_bytes to {num_bytes}, or use more ranks"


def check_memory(memories: Sequence[RankMemory], max_model_len: int) -> None:
    """Refuse memory that does not hold one request of ``max_model_len`` tokens on every rank.

    Raises:
        NoMemory: A rank has room for the null block at most.
        InsufficientMemory: A rank has too little.
        HostPoolTooSmall: A rank's host memory has.
    """
    for memory in memories:
        if memory.usable_bytes <= 0:
            raise memory.no_memory()
    for memory in memories:
        if memory.needed_bytes(max_model_len) > memory.usable_bytes:
            raise memory.insufficient(max_model_len, longest_model_len(memories, max_model_len))
        for group, pool in memory.host_pools():
            pool.check(group, memory.request.workload(max_model_len))


def longest_model_len(memories: Sequence[RankMemory], at_most: int) -> int:
    """The longest request, up to ``at_most`` tokens, that fits on every rank; 0 where not even one does."""
    for memory in memories:
        if not memory.fits(at_most):
            at_most = memory.longest_model_len(at_most)
    return at_most


ENDLESS = 2**62
"""Tokens: more than any memory holds one by one."""
