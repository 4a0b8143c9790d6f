"""From layers and memory to a plan: the steps in order.

Every rank of a model allocates the same blocks under the same ids, so groups follow from the whole model and
the number of blocks from the rank that has least room.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from blockyard.core.errors import InvalidRequest
from blockyard.planning.block_sizes import BlockSizes, block_sizes
from blockyard.planning.capacity import Capacity, capacity
from blockyard.planning.errors import ConflictingLayerSpecs
from blockyard.planning.grouping import group_layers
from blockyard.planning.groups import Grouping, Layers
from blockyard.planning.host_pool import HostPool
from blockyard.planning.layers import AttentionLayer, Layer, Mamba, SlidingWindow
from blockyard.planning.layouts import Layout
from blockyard.planning.memory import ENDLESS, RankMemory, check_memory, longest_model_len
from blockyard.planning.placement import Placement, Slot, Tensor, run_tensors
from blockyard.planning.request import PlanRequest, TensorForm

MAX_TENSOR_BYTES = 2**63 - 1
"""Offsets are signed 64-bit numbers wherever they are used."""

MAX_TENSORS = 2**20
"""That one plan lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank's share of a plan.

    Attributes:
        placement: Its groups, and how they lie.
        tensors: Where its layers lie; the host's first.
        num_replicas: Consecutive tensor-parallel ranks that keep the same content.
        available_bytes: That were to be planned with.
    """

    placement: Placement
    tensors: list[Tensor] | list[Slot]
    num_replicas: int
    available_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a model's cache is laid out.

    Attributes:
        request: What was asked.
        num_blocks: Block ids, the null block (0) included.
        max_model_len: Tokens of the longest request.
        longest_model_len: Tokens of the longest request that fits; None where there is no bound.
        capacity: What fits; None for a model that keeps nothing.
        block_sizes: At which scheduling and hashing step.
        grouping: The model's groups.
        ranks: In the order asked.
        host_pool: The host's blocks, where pages lie there.
    """

    request: PlanRequest
    num_blocks: int
    max_model_len: int
    longest_model_len: int | None
    capacity: Capacity | None
    block_sizes: BlockSizes
    grouping: Grouping
    ranks: list[RankPlan]
    host_pool: HostPool | None


def plan(request: PlanRequest) -> Plan:
    """Blocks, groups and tensors for what ``request`` describes.

    Raises:
        InvalidRequest: Values contradict each other; the field is named.
        PlanError: There is no such plan; see `blockyard.planning.errors`.
    """
    if request.tensor_form is TensorForm.SLOTS and request.sparse_host is not None:
        raise InvalidRequest.of(
            "tensor_form", "slots cannot describe hisparse, whose pages lie in two places"
        )
    grouping = group_layers(_model_layers(request), request)
    shares = [tuple(rank.layers) for rank in request.ranks]
    placement_of = {
        names: Placement.of(grouping, names, request.layout, request.tensor_form)
        for names in dict.fromkeys(shares)
    }
    placements = [placement_of[names] for names in shares]
    memories = [
        RankMemory.of(rank, placement, request)
        for rank, placement in enumerate(placements)
        if placement.bytes_per_block
    ]
    max_model_len = request.max_model_len
    if request.auto_fit_max_model_len:
        max_model_len = max(longest_model_len(memories, max_model_len), 1)
    check_memory(memories, max_model_len)
    longest = longest_model_len(memories, ENDLESS)
    num_blocks = min((memory.num_blocks for memory in memories), default=1)
    if (
        num_blocks * max((placement.bytes_per_block for placement in placements), default=0)
        > MAX_TENSOR_BYTES
    ):
        raise InvalidRequest.of(
            "num_blocks_override", f"{num_blocks} blocks of these layers are beyond any memory"
        )
    host_pools = [pool for memory in memories for _, pool in memory.host_pools()]
    host_pool = min(host_pools, key=lambda pool: pool.num_blocks, default=None)
    return Plan(
        request=request,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        longest_model_len=None if longest == ENDLESS else longest,
        capacity=capacity(grouping.groups, num_blocks, host_pool, request.workload(max_model_len)),
        block_sizes=block_sizes(grouping.groups, request),
        grouping=replace(
            grouping,
            warnings=[
                *request.remarks,
                *grouping.warnings,
                *_sharding_warnings(grouping, request),
                *_mode_warnings(grouping, request),
                *_memory_warnings(memories, num_blocks),
            ],
        ),
        ranks=_rank_plans(placements, num_blocks, host_pool, request),
        host_pool=host_pool,
    )


def _model_layers(request: PlanRequest) -> Layers:
    """The layers of all ranks; sliding windows keep what a drafter of several modules computes again.

    Raises:
        ConflictingLayerSpecs: Ranks describe one layer differently.
    """
    layers: dict[str, Layer] = {}
    for rank in request.ranks:
        for name, layer in rank.layers.items():
            known = layers.setdefault(name, layer)
            if known is not layer and known != layer:
                raise ConflictingLayerSpecs(
                    f"layer {name!r} is described in two ways: ranks that compute it have to agree on it",
                    {"layer": name},
                )
    speculative = request.speculative
    num_retained = max(0, speculative.num_prefill_lookahead_tokens - 1) if speculative else 0
    return {
        name: layer.but(extra_retained_tokens=max(layer.extra_retained_tokens, num_retained))
        if num_retained and isinstance(layer, SlidingWindow)
        else layer
        for name, layer in layers.items()
    }


def _rank_plans(
    placements: list[Placement], num_blocks: int, host_pool: HostPool | None, request: PlanRequest
) -> list[RankPlan]:
    """Each rank's share. Ranks with the same layers share all but their memory."""
    shared = {
        id(placement): (_tensors(placement, num_blocks, host_pool), _num_replicas(placement, request))
        for placement in {id(each): each for each in placements}.values()
    }
    if sum(len(shared[id(placement)][0]) for placement in placements) > MAX_TENSORS:
        raise InvalidRequest.of("workers", f"the plan would list more than {MAX_TENSORS} tensors")
    return [
        RankPlan(
            placement=placement,
            tensors=shared[id(placement)][0],
            num_replicas=shared[id(placement)][1],
            available_bytes=rank.available_bytes,
        )
        for rank, placement in zip(request.ranks, placements, strict=True)
    ]


def _tensors(placement: Placement, num_blocks: int, host_pool: HostPool | None) -> list[Tensor] | list[Slot]:
    placement.check_layout()
    tensors = placement.tensors(num_blocks) if placement.bytes_per_block else []
    if host_pool is None:
        return tensors
    host = [
        tensor
        for group in placement.host_groups
        for tensor in run_tensors(
            [group], Layout.LBNHC, host_pool.num_blocks, group.page_bytes, host_resident=True
        )
    ]
    return [*host, *tensors]


def _num_replicas(placement: Placement, request: PlanRequest) -> int:
    """Consecutive tensor-parallel ranks that keep the same content of every layer."""
    parallel = request.parallel
    layers = [
        layer
        for group in placement.groups
        for layer in {group.form, *(group.layers or group.elsewhere).values()}
    ]
    if not layers:
        return 1
    return math.gcd(
        parallel.tensor, *(layer.num_replicas(parallel.tensor, parallel.decode_context) for layer in layers)
    )


def max_decode_context(layers: Iterable[Layer], tensor: int) -> int:
    """Over how many ranks token positions can be spread: of ``tensor``, those that keep the same heads.

    Decode-context ranks are tensor-parallel ranks. Those that keep different heads cannot share positions.
    """
    return math.gcd(tensor, *(layer.num_replicas(tensor, 1) for layer in layers if layer.dcp_sharded))


def _sharding_warnings(grouping: Grouping, request: PlanRequest) -> list[str]:
    """Where positions are spread over more ranks than keep the same heads."""
    parallel = request.parallel
    layers = {
        layer
        for group in grouping.groups
        for layer in group.layers.values()
        if isinstance(layer, AttentionLayer) and layer.max_tp_shards is not None
    }
    most = max_decode_context(layers, parallel.tensor)
    if most % parallel.decode_context == 0:
        return []
    what = f"{most} of {parallel.tensor} tensor ranks keep the same heads and can share token positions"
    return [f"parallel.decode_context is {parallel.decode_context}, but {what}: the plan promises too much"]


def _mode_warnings(grouping: Grouping, request: PlanRequest) -> list[str]:
    modes = {g.form.mamba_cache_mode for g in grouping.groups if isinstance(g.form, Mamba)}
    return [
        f"recurrent layers say mamba_cache_mode {mode!r} and the plan counts their states for "
        f"{request.mamba_cache_mode!r}: give both the same"
        for mode in sorted(modes - {request.mamba_cache_mode})
    ]


def _memory_warnings(memories: list[RankMemory], num_blocks: int) -> list[str]:
    """Where more blocks are asked for than a rank's memory holds."""
    missing = {
        memory.rank: num_blocks * memory.placement.bytes_per_block
        - memory.request.ranks[memory.rank].available_bytes
        for memory in memories
    }
    worst = max(missing, key=lambda rank: missing[rank], default=0)
    if missing.get(worst, 0) <= 0:
        return []
    return [
        f"num_blocks_override: {num_blocks} blocks take {missing[worst]} bytes more than rank {worst} has"
    ]
