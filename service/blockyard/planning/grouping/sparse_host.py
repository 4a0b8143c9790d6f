"""Sparse MLA pages on the host ("HiSparse"): which groups the GPU keeps instead.

Sparse attention reads few tokens of a long request. Its pages lie in host memory; the GPU keeps

    indexers     small pages for all tokens, which choose what is read
    residents    pages of tokens in flight, until they are copied to the host
    hot          a buffer of pages that were read lately, as many for a request of any length

Layers that share one choice (`is_index_group_leader` tells the first of them) share a resident and a hot
group, and so do further ones as long as their pages fit the indexers' part of a block.

Source: vLLM's HiSparse layout.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import DeviceBufferTooSmall, IncompatiblePageSizes
from blockyard.planning.groups import Group, Grouping, Layers, can_share_table
from blockyard.planning.layers import Layer, MlaAttention, Workload
from blockyard.planning.request import PlanRequest, SparseHost

MAX_DEVICE_BUFFER_SIZE = 2**15
"""Tokens: slots of the hot buffer are numbered in 16 bits with a sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SparsePage(Layer):
    """A page of sparse MLA as it is, without a view of what is in it.

    Attributes:
        num_bytes: Of the page.
    """

    num_bytes: int

    @property
    def num_heads(self) -> int:
        """One."""
        return 1

    @property
    def num_states(self) -> int:
        """One."""
        return 1

    @property
    def state_bytes(self) -> int:
        """The page."""
        return self.num_bytes

    def _needs_same_slots(self, other: Layer) -> bool:
        return self == other


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentPage(_SparsePage):
    """Pages of tokens in flight."""

    kind: ClassVar[str] = "resident"

    def max_blocks(self, workload: Workload) -> int:
        """Blocks for what is in flight, of no more than the longest request."""
        return div_ceil(min(workload.max_in_flight_tokens, workload.max_model_len), self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPage(_SparsePage):
    """Pages that were read lately.

    Attributes:
        num_blocks_per_request: Whatever its length.
    """

    kind: ClassVar[str] = "hot"

    num_blocks_per_request: int

    @property
    def stride_alignment(self) -> int:
        """Slots are numbered across blocks, so a block is a whole number of pages."""
        return self.num_bytes

    def max_blocks(self, workload: Workload) -> int:  # noqa: ARG002 - whatever the length
        """See `num_blocks_per_request`."""
        return self.num_blocks_per_request


def sparse_host_groups(
    layers: Layers, request: PlanRequest, group_others: Callable[[Layers], Grouping]
) -> Grouping:
    """The host's group, then the GPU's: indexers, residents, hot ones, and the groups of all other layers.

    Raises:
        InvalidRequest: The layers are not of this sort, or the layout does not keep blocks together.
        DeviceBufferTooSmall: The hot buffer does not hold what one step reads.
        IncompatiblePageSizes: Layers that share a choice have pages of several sizes.
    """
    assert request.sparse_host is not None
    mla = {name: layer for name, layer in layers.items() if type(layer) is MlaAttention}
    others = {name: layer for name, layer in layers.items() if name not in mla}
    sparse = {name: layer for name, layer in mla.items() if layer.cache_role == "sparse"}
    indexers: Layers = {name: layer for name, layer in mla.items() if layer.cache_role == "indexer"}
    _check(sparse, indexers, request)
    block_size = next(iter(sparse.values())).block_size
    num_hot_blocks = div_ceil(_device_buffer_size(request.sparse_host), block_size)
    residents, hot = [], []
    for names, page in _units(sparse, sum(layer.page_bytes for layer in indexers.values())):
        resident_page = ResidentPage(block_size=block_size, num_bytes=page)
        hot_page = HotPage(block_size=block_size, num_bytes=page, num_blocks_per_request=num_hot_blocks)
        residents.append(_derived(names, resident_page))
        hot.append(_derived(names, hot_page))
    rest = group_others(others) if others else Grouping(groups=())
    return Grouping(
        groups=[
            replace(Group.of(sparse), host_resident=True),
            Group.of(indexers),
            *residents,
            *hot,
            *rest.groups,
        ]
    )


def _check(sparse: dict[str, MlaAttention], indexers: Layers, request: PlanRequest) -> None:
    if not sparse or not indexers:
        raise InvalidRequest.of(
            "hisparse", "needs mla_attention layers of both cache roles, sparse and indexer"
        )
    if any(layer.model_version == "deepseek_v4" for layer in sparse.values()):
        raise InvalidRequest.of("hisparse", "is not for layers of model version deepseek_v4")
    if not can_share_table({**sparse, **indexers}):
        raise InvalidRequest.of("hisparse", "needs one block size for all MLA layers")
    if not request.layout.is_block_outermost:
        raise InvalidRequest.of("layout", "hisparse needs a block-outermost layout, such as BLHNC")


def _device_buffer_size(sparse_host: SparseHost) -> int:
    """Tokens of the hot buffer: what the queries of one step read, and what one more would, for reuse."""
    needed = sparse_host.max_decode_query_len * sparse_host.index_topk
    size = sparse_host.device_buffer_size or needed + sparse_host.index_topk
    if size < needed:
        raise DeviceBufferTooSmall(
            f"one step reads up to {needed} tokens of a request, {sparse_host.max_decode_query_len} times "
            f"{sparse_host.index_topk}, and the buffer holds {size}: raise hisparse.device_buffer_size",
            {"device_buffer_size": size, "needed_tokens": needed},
        )
    if size > MAX_DEVICE_BUFFER_SIZE:
        raise InvalidRequest.of(
            "hisparse.device_buffer_size",
            f"is {size} tokens: at most {MAX_DEVICE_BUFFER_SIZE} can be numbered",
        )
    return size


def _units(sparse: dict[str, MlaAttention], block_bytes: int) -> list[tuple[list[str], int]]:
    """The layers that share resident and hot groups, and their page size."""
    choices: list[list[str]] = []
    for name, layer in sparse.items():
        if layer.is_index_group_leader or not choices:
            choices.append([])
        choices[-1].append(name)
    units: list[list[str]] = []
    filled = 0
    for names in choices:
        num_bytes = sum(sparse[name].page_bytes for name in names)
        if not units or filled + num_bytes > block_bytes:
            units.append([])
            filled = 0
        units[-1] += names
        filled += num_bytes
    return [(names, _page_of(names, sparse)) for names in units]


def _page_of(names: list[str], sparse: dict[str, MlaAttention]) -> int:
    pages = {name: sparse[name].page_bytes for name in names}
    if len(set(pages.values())) != 1:
        raise IncompatiblePageSizes(
            "sparse layers that share a hot buffer need one page size", {"page_size_bytes": pages}
        )
    return pages[names[0]]


def _derived(names: list[str], page: Layer) -> Group:
    return Group(layers={f"{name}.{page.kind}": page for name in names}, form=page, derived=True)
