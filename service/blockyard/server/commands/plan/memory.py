"""How each rank's memory divides, in bytes."""

from dataclasses import dataclass
from enum import Enum

from blockyard.planning.planner import Plan
from blockyard.server.plan_schemas import PlanBody, WorkerBody


class Part(Enum):
    """What memory is for, as people read it."""

    WEIGHTS = "weights"
    BLOCKS = "KV blocks"
    """All but the null block."""
    NULL_BLOCK = "null block"
    LEFT_OVER = "left over"
    """Less than a block; more where another rank has room for fewer blocks."""
    HELD_BACK = "held back"
    """By the utilization."""


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """One memory, divided.

    Attributes:
        parts: Bytes of each part that there can be, in the order of the enumeration.
        missing_bytes: What the blocks take beyond the memory; only where their number was given.
    """

    parts: dict[Part, int]
    missing_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of the memory, what is missing included."""
        return sum(self.parts.values())


def device_memory(body: PlanBody, plan: Plan) -> list[MemoryShares]:
    """Each rank's."""
    workers = body.workers * len(plan.ranks) if len(body.workers) == 1 else body.workers
    return [
        _shares(worker, rank.placement.bytes_per_block, plan.num_blocks)
        for worker, rank in zip(workers, plan.ranks, strict=True)
    ]


def host_memory(body: PlanBody, plan: Plan) -> MemoryShares | None:
    """Of the host's pages, where there are any."""
    if body.hisparse is None or plan.host_pool is None:
        return None
    pool = plan.host_pool
    return MemoryShares(
        {
            Part.BLOCKS: (pool.num_blocks - 1) * pool.block_stride,
            Part.NULL_BLOCK: pool.block_stride,
            Part.LEFT_OVER: body.hisparse.host_pool_bytes - pool.num_blocks * pool.block_stride,
        }
    )


def _shares(worker: WorkerBody, bytes_per_block: int, num_blocks: int) -> MemoryShares:
    blocks = {Part.BLOCKS: (num_blocks - 1) * bytes_per_block, Part.NULL_BLOCK: bytes_per_block}
    if worker.total_memory_bytes is None:
        left = worker.available_bytes() - sum(blocks.values())
        return MemoryShares({**blocks, Part.LEFT_OVER: max(0, left)}, max(0, -left))
    usable = int(worker.total_memory_bytes * worker.memory_utilization)
    left = usable - worker.weights_bytes - sum(blocks.values())
    return MemoryShares(
        {
            Part.WEIGHTS: worker.weights_bytes,
            **blocks,
            Part.LEFT_OVER: max(0, left),
            Part.HELD_BACK: worker.total_memory_bytes - usable,
        },
        max(0, -left),
    )
