"""A plan as the reply to its request."""

from typing import Any

from pydantic import BaseModel, Field

from blockyard.planning.groups import Group
from blockyard.planning.placement import Slot, Tensor
from blockyard.planning.planner import Plan, RankPlan


class CapacityReply(BaseModel):
    """What the plan serves."""

    num_tokens: int = Field(description="Of requests of full length.")
    max_concurrency: float = Field(description="Requests of full length at a time.")


class DerivedReply(BaseModel):
    """Caches that the planner adds for layers whose pages lie on the host."""

    kind: str = Field(description="resident: pages in flight; hot: pages read lately.")
    layer_names: list[str]
    page_size_bytes: int = Field(description="Of each; they lie side by side from a block's first byte.")


class GroupReply(BaseModel):
    """Layers of one rank that share a block table."""

    kind: str
    layer_names: list[str]
    block_size: int = Field(description="Tokens a block.")
    page_size_bytes: dict[str, int] = Field(description="By layer.")
    is_draft: bool
    host_resident: bool
    max_blocks_per_request: int = Field(description="Held at a time by a request of full length.")
    derived: DerivedReply | None


class TensorReply(BaseModel):
    """Equal layers: layer l's page of block b begins at offset + l * layer_stride + b * block_stride."""

    size: int = Field(description="Bytes of the backing allocation.")
    layers: list[str]
    layer_stride: int
    block_stride: int
    offset: int
    host_resident: bool
    is_elsewhere: bool = Field(
        description="None of the layers is on this rank: nothing is kept for them here."
    )


class SlotReply(BaseModel):
    """A page of every block, and the layers that share it, one a group."""

    size: int = Field(description="Bytes of the backing allocation.")
    shared_by: list[str]
    offset: int
    block_stride: int


class RankReply(BaseModel):
    """One rank."""

    num_blocks: int
    tp_replicas: int = Field(description="Consecutive tensor-parallel ranks that keep the same content.")
    available_memory_bytes: int
    bytes_per_block: int
    groups: list[GroupReply]
    tensors: list[TensorReply] | list[SlotReply]


class PlanReply(BaseModel):
    """Blocks, groups and tensors. Sizes, strides and offsets in bytes."""

    num_blocks: int = Field(description="The null block (id 0) included.")
    max_model_len: int
    longest_model_len: int | None = Field(
        description="Tokens of the longest request that fits; null: no bound."
    )
    capacity: CapacityReply | None = Field(description="Null for a model that keeps nothing.")
    scheduler_block_size: int
    hash_block_size: int
    layout: str
    host_num_blocks: int | None
    host_block_stride_bytes: int | None
    workers: list[RankReply]
    warnings: list[str]


def plan_reply(plan: Plan) -> PlanReply:
    """``plan`` for the wire."""
    capacity, host_pool = plan.capacity, plan.host_pool
    return PlanReply(
        num_blocks=plan.num_blocks,
        max_model_len=plan.max_model_len,
        longest_model_len=plan.longest_model_len,
        capacity=capacity
        and CapacityReply(num_tokens=capacity.num_tokens, max_concurrency=capacity.max_concurrency),
        scheduler_block_size=plan.block_sizes.scheduler,
        hash_block_size=plan.block_sizes.hash,
        layout=plan.request.layout.value,
        host_num_blocks=host_pool and host_pool.num_blocks,
        host_block_stride_bytes=host_pool and host_pool.block_bytes,
        workers=[rank_reply(rank, plan) for rank in plan.ranks],
        warnings=plan.grouping.warnings,
    )


def rank_reply(rank: RankPlan, plan: Plan) -> RankReply:
    """One rank's share of ``plan`` for the wire."""
    return RankReply(
        num_blocks=plan.num_blocks,
        tp_replicas=rank.num_replicas,
        available_memory_bytes=rank.available_bytes,
        bytes_per_block=rank.placement.bytes_per_block,
        groups=[_group(group, plan) for group in rank.placement.groups],
        tensors=[_tensor(tensor) for tensor in rank.tensors],
    )


def _group(group: Group, plan: Plan) -> GroupReply:
    reported = {} if group.derived else group.layers
    return GroupReply(
        kind=group.form.kind,
        layer_names=list(reported),
        block_size=group.form.block_size,
        page_size_bytes={name: layer.page_bytes for name, layer in reported.items()},
        is_draft=group.is_draft,
        host_resident=group.host_resident,
        max_blocks_per_request=group.max_blocks(plan.request.workload(plan.max_model_len)),
        derived=DerivedReply(
            kind=group.form.kind, layer_names=list(group.layers), page_size_bytes=group.form.page_bytes
        )
        if group.derived
        else None,
    )


def _tensor(tensor: Tensor | Slot) -> Any:
    if isinstance(tensor, Slot):
        return SlotReply(
            size=tensor.size,
            shared_by=list(tensor.shared_by),
            offset=tensor.offset,
            block_stride=tensor.block_stride,
        )
    return TensorReply(
        size=tensor.size,
        layers=list(tensor.layers),
        layer_stride=tensor.layer_stride,
        block_stride=tensor.block_stride,
        offset=tensor.offset,
        host_resident=tensor.host_resident,
        is_elsewhere=tensor.is_elsewhere,
    )
