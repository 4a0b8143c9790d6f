"""What is asked of the planner, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from blockyard.core.errors import InvalidRequest
from blockyard.planning.groups import Layers
from blockyard.planning.layers import MAMBA_CACHE_MODES, Workload
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel


class TensorForm(StrEnum):
    """How a plan describes where layers lie."""

    LAYERS = "layers"
    """A tensor for each run of equal layers of a group, with its strides; groups overlay each other."""
    SLOTS = "slots"
    """A tensor for each page of a block, with the layers that share it, one a group.

    Groups then share pages of equal size only: where they have pages of several sizes, blocks are larger.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One worker.

    Attributes:
        available_bytes: Memory for the KV cache, at least 0.
        layers: That it computes, by name, in registration order.
    """

    available_bytes: int
    layers: Layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """How tokens are drafted.

    Attributes:
        method: The drafter, such as ``eagle`` or ``mtp``.
        model_type: The model's, where layers of a drafter can be told by their place for that model alone.
        num_prefill_lookahead_tokens: Tokens that the drafter's modules look ahead in a prefill.
    """

    method: str
    model_type: str | None = None
    num_prefill_lookahead_tokens: int = 0

    @property
    def drafts_with_kv(self) -> bool:
        """Whether the drafter has KV layers whose last block is not to be reused."""
        return self.method in ("eagle", "eagle3", "mtp", "dflash", "dspark")

    @property
    def draft_layers_come_last(self) -> bool:
        """Whether the drafter's layers are registered behind all of the model's and bear no mark."""
        return self.method == "mtp" or (
            self.drafts_with_kv and self.model_type in ("deepseek_v4", "deepseek_v41")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseHost:
    """Sparse MLA pages on the host ("HiSparse"): the GPU keeps indexers, and pages while they are in use.

    Attributes:
        host_pool_bytes: Host memory for the pages.
        index_topk: Tokens that sparse attention reads of a request, a query.
        device_buffer_size: Tokens of a request that stay hot on the GPU; None for enough of them.
        max_decode_query_len: Queries of a request that one step decodes, drafts included.
        shared_host_pool: Whether the ranks of a machine share the host's pool.
    """

    host_pool_bytes: int
    index_topk: int
    device_buffer_size: int | None = None
    max_decode_query_len: int = 1
    shared_host_pool: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A model spread over ranks, and how its cache is to be used.

    Attributes:
        ranks: At least one; those that compute the same layers describe them alike.
        max_model_len: Tokens of the longest request; with `auto_fit_max_model_len`, of the longest allowed.
        auto_fit_max_model_len: Cut `max_model_len` to what fits.
        block_size: Tokens a block where there is no group that says so.
        layout: Of the memory.
        num_blocks_override: Plan so many blocks, whatever the memory.
        enable_prefix_caching: Whether blocks are hashed at all.
        prefix_match_unit: Tokens that a hit's length is a multiple of; None for the finest.
        hybrid_groups: Give layers of different kinds block tables of their own; else all are allocated alike.
        mamba_cache_mode: See `Workload`.
        max_in_flight_tokens: See `Workload`.
        max_encoder_tokens: See `Workload`.
        parallel: How the model is spread.
        speculative: How tokens are drafted, if they are.
        sparse_host: Sparse MLA pages on the host, if they are.
        tensor_form: How the plan says where layers lie.
        remarks: What was noted when the request was made, to be told with the plan.
    """

    ranks: Sequence[Rank]
    max_model_len: int
    auto_fit_max_model_len: bool = False
    block_size: int = 16
    layout: Layout = Layout.LBNHC
    num_blocks_override: int | None = None
    enable_prefix_caching: bool = True
    prefix_match_unit: int | None = None
    hybrid_groups: bool = True
    mamba_cache_mode: str = "none"
    max_in_flight_tokens: int = 8192
    max_encoder_tokens: int | None = None
    parallel: Parallel = field(default_factory=Parallel)
    speculative: Speculative | None = None
    sparse_host: SparseHost | None = None
    tensor_form: TensorForm = TensorForm.LAYERS
    remarks: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse what no plan can be made for.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        if not self.ranks:
            raise InvalidRequest.of("workers", "give at least one")
        for name in ("max_model_len", "block_size", "max_in_flight_tokens"):
            if getattr(self, name) < 1:
                raise InvalidRequest.of(name, "must be at least 1")
        if self.mamba_cache_mode not in MAMBA_CACHE_MODES:
            raise InvalidRequest.of("mamba_cache_mode", f"must be one of {', '.join(MAMBA_CACHE_MODES)}")

    def workload(self, max_model_len: int | None = None) -> Workload:
        """What bounds a request; of another length where ``max_model_len`` is given."""
        return Workload(
            max_model_len=self.max_model_len if max_model_len is None else max_model_len,
            max_in_flight_tokens=self.max_in_flight_tokens,
            decode_context=self.parallel.decode_context,
            mamba_cache_mode=self.mamba_cache_mode,
            max_encoder_tokens=self.max_encoder_tokens,
        )
