"""The host's blocks, where sparse MLA pages lie in host memory."""

from dataclasses import dataclass

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.errors import HostPoolTooSmall
from blockyard.planning.groups import Group
from blockyard.planning.layers import Workload
from blockyard.planning.request import SparseHost

OS_PAGE_BYTES = 4096
"""A pool that ranks share is mapped memory: its blocks begin at pages of the operating system."""

NUM_SPARE_BLOCKS = 2
"""Beside a request's own: the null block, and a copy of a last block that is shared until it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPool:
    """Blocks in host memory.

    Attributes:
        num_blocks: Block ids.
        block_bytes: Set aside for a block, all layers.
    """

    num_blocks: int
    block_bytes: int

    @classmethod
    def of(cls, group: Group, sparse_host: SparseHost) -> "HostPool":
        """The blocks of ``group`` that fit."""
        alignment = OS_PAGE_BYTES if sparse_host.shared_host_pool else 1
        stride = div_ceil(group.page_bytes, alignment) * alignment
        return cls(num_blocks=sparse_host.host_pool_bytes // stride, block_bytes=stride)

    def fits(self, group: Group, workload: Workload) -> bool:
        """Whether one request of full length finds a host block for each of its pages."""
        return self.num_blocks >= _num_required(group, workload)

    def check(self, group: Group, workload: Workload) -> None:
        """Refuse a pool that is too small for one request of full length.

        Raises:
            HostPoolTooSmall: It is.
        """
        if not self.fits(group, workload):
            num_required = _num_required(group, workload)
            raise HostPoolTooSmall(
                f"the host pool has {self.num_blocks} blocks and {workload.max_model_len} tokens need "
                f"{num_required}: raise hisparse.host_pool_bytes to {num_required * self.block_bytes}, or "
                "lower max_model_len",
                {"num_host_blocks": self.num_blocks, "num_required_blocks": num_required},
            )


def _num_required(group: Group, workload: Workload) -> int:
    return group.max_blocks(workload) + NUM_SPARE_BLOCKS
