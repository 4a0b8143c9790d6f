"""Sparse pages on the host: the groups on the GPU that stand in for them, and both pools' sizes."""

from typing import Any

import pytest

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import (
    DeviceBufferTooSmall,
    HostPoolTooSmall,
    IncompatiblePageSizes,
    InsufficientMemory,
    NoMemory,
)
from blockyard.planning.grouping.sparse_host import HotPage, ResidentPage
from blockyard.planning.groups import Group
from blockyard.planning.layers import Layer, MlaAttention
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.planner import Plan
from blockyard.planning.request import SparseHost, TensorForm
from blockyard.server.plan_reply import plan_reply
from planning.make_layers import (
    bytes_per_block,
    groups_of,
    make_full,
    make_indexer,
    make_mla,
    make_plan,
    make_window,
    names_of,
    tensors_of,
)

TOKEN_BYTES = 576 * 2
"""Of a sparse layer; an indexer's are 128 * 2."""

ROOMY = SparseHost(host_pool_bytes=2**30, index_topk=128)


def make_sparse(**sizes: Any) -> MlaAttention:
    return make_mla(**{"block_size": 64, "dtype": "bfloat16", "is_index_group_leader": True, **sizes})


def make_small_indexer(**sizes: Any) -> MlaAttention:
    return make_indexer(
        **{"block_size": 64, "head_size": 128, "dtype": "bfloat16", "cache_role": "indexer", **sizes}
    )


def make_sparse_model(num_layers: int = 1, **sizes: Any) -> dict[str, Layer]:
    layers: dict[str, Layer] = {}
    for number in range(num_layers):
        layers[f"layers.{number}.mla"] = make_sparse(**sizes)
        layers[f"layers.{number}.indexer"] = make_small_indexer(**sizes)
    return layers


def make_sparse_plan(layers: dict[str, Layer] | None = None, **asked: Any) -> Plan:
    request = {"sparse_host": ROOMY, "layout": Layout.BLHNC, **asked}
    return make_plan(make_sparse_model() if layers is None else layers, **request)


def derived_groups(plan: Plan, kind: type[Layer]) -> list[Group]:
    return [group for group in groups_of(plan) if isinstance(group.form, kind)]


# Groups


@pytest.mark.parametrize("block_size", [32, 64])
@pytest.mark.parametrize("shared_host_pool", [False, True])
def test_all_groups_have_the_block_size_of_the_layers(block_size: int, shared_host_pool: bool) -> None:
    # A request holds one block of indexers, one resident one, and 128 tokens hot: up to six of seven blocks.
    host = SparseHost(
        host_pool_bytes=2**30, index_topk=128, device_buffer_size=128, shared_host_pool=shared_host_pool
    )
    plan = make_sparse_plan(
        make_sparse_model(block_size=block_size),
        sparse_host=host,
        max_model_len=block_size,
        num_blocks_override=7,
        available_bytes=2**30,
    )
    assert plan.num_blocks == 7
    assert plan.host_pool is not None
    assert plan.host_pool.block_bytes == block_size * TOKEN_BYTES
    assert plan.host_pool.num_blocks == 2**30 // (block_size * TOKEN_BYTES) > 7
    assert names_of(plan) == [
        ["layers.0.mla"],
        ["layers.0.indexer"],
        ["layers.0.mla.resident"],
        ["layers.0.mla.hot"],
    ]
    assert [group.host_resident for group in groups_of(plan)] == [True, False, False, False]
    assert {group.form.block_size for group in groups_of(plan)} == {block_size}
    assert groups_of(plan)[1].prefix_cacheable
    assert plan.block_sizes.scheduler == plan.block_sizes.hash == block_size


def test_sparse_layers_lie_in_host_memory_alone() -> None:
    plan = make_sparse_plan(make_sparse_model(2), max_model_len=64)
    assert plan.host_pool is not None
    host, device = tensors_of(plan)
    page = 64 * TOKEN_BYTES
    assert (host.layers, device.layers) == (
        ["layers.0.mla", "layers.1.mla"],
        ["layers.0.indexer", "layers.1.indexer"],
    )
    assert (host.host_resident, device.host_resident) == (True, False)
    assert (host.block_stride, host.layer_stride) == (page, page * plan.host_pool.num_blocks)
    assert host.size == 2 * page * plan.host_pool.num_blocks


def test_a_pool_that_ranks_share_has_blocks_that_begin_at_pages_of_the_system() -> None:
    # 16 tokens are 18,432 bytes, four and a half pages of 4,096.
    host = SparseHost(host_pool_bytes=2**20, index_topk=16, shared_host_pool=True)
    plan = make_sparse_plan(make_sparse_model(block_size=16), sparse_host=host)
    assert plan.host_pool is not None
    assert plan.host_pool.block_bytes == 5 * 4096
    assert plan.host_pool.num_blocks == 2**20 // (5 * 4096)


def test_layers_that_share_a_choice_share_resident_and_hot_groups() -> None:
    follower = make_sparse(is_index_group_leader=False)
    layers = make_sparse_model() | {"layers.1.mla": follower, "layers.2.mla": make_sparse()}
    plan = make_sparse_plan(layers, max_model_len=64)
    assert [list(group.layers) for group in derived_groups(plan, ResidentPage)] == [
        ["layers.0.mla.resident", "layers.1.mla.resident"],
        ["layers.2.mla.resident"],
    ]
    assert [list(group.layers) for group in derived_groups(plan, HotPage)] == [
        ["layers.0.mla.hot", "layers.1.mla.hot"],
        ["layers.2.mla.hot"],
    ]


def test_choices_share_groups_as_long_as_they_fit_the_indexers_part_of_a_block() -> None:
    # Indexers of 3 * 1,000 bytes a token, sparse pages of 1,200: two of them fit, and the third does not.
    layers: dict[str, Layer] = {}
    for number in range(3):
        layers[f"layers.{number}.mla"] = make_sparse(head_size=600)
        layers[f"layers.{number}.indexer"] = make_small_indexer(head_size=500)
    plan = make_sparse_plan(layers, max_model_len=64)
    assert [len(group.layers) for group in derived_groups(plan, ResidentPage)] == [2, 1]
    assert [len(group.layers) for group in derived_groups(plan, HotPage)] == [2, 1]


def test_layers_before_the_first_leader_make_a_choice_as_well() -> None:
    layers = make_sparse_model(2) | {"layers.0.mla": make_sparse(is_index_group_leader=False)}
    assert len(derived_groups(make_sparse_plan(layers, max_model_len=64), HotPage)) == 2


def test_a_block_is_a_whole_number_of_hot_pages() -> None:
    # Indexers of 5 * 16,384 = 81,920 bytes, and pages of 73,728: two of these.
    plan = make_sparse_plan(make_sparse_model(5), max_model_len=64)
    assert bytes_per_block(plan) == 2 * 64 * TOKEN_BYTES


def test_other_layers_have_groups_of_their_own() -> None:
    layers = make_sparse_model() | {"full": make_full(block_size=64), "window": make_window()}
    plan = make_sparse_plan(layers, max_model_len=64)
    assert names_of(plan)[-2:] == [["full"], ["window"]]


def test_derived_groups_are_not_among_the_layers_that_ranks_report() -> None:
    reply = plan_reply(make_sparse_plan(max_model_len=64)).workers[0]
    resident, hot = reply.groups[2:]
    for group in (resident, hot):
        assert group.derived is not None
        assert group.layer_names == []
        assert group.page_size_bytes == {}
        assert group.derived.kind == group.kind
        assert group.derived.layer_names == [f"layers.0.mla.{group.kind}"]
        assert group.derived.page_size_bytes == 64 * TOKEN_BYTES
    assert (resident.kind, hot.kind) == ("resident", "hot")
    assert [group.derived for group in reply.groups[:2]] == [None, None]


def test_a_rank_without_sparse_layers_keeps_the_groups_and_nothing_in_them() -> None:
    layers = make_sparse_model(2)
    first = {name: layer for name, layer in layers.items() if name.startswith("layers.0")}
    last = {name: layer for name, layer in layers.items() if name.startswith("layers.1")}
    plan = make_plan(first, last, sparse_host=ROOMY, layout=Layout.BLHNC, max_model_len=64)
    assert names_of(plan, 1) == [
        ["layers.1.mla"],
        ["layers.1.indexer"],
        [],
        ["layers.1.mla.resident"],
        [],
        ["layers.1.mla.hot"],
    ]


# How many blocks a request holds


def test_residents_are_bounded_by_what_is_in_flight_and_hot_pages_by_the_buffer() -> None:
    plan = make_sparse_plan(make_sparse_model(4), max_model_len=32_768, max_in_flight_tokens=2048)
    workload = plan.request.workload()
    # Sparse 512, indexers 512, residents 2,048 / 64, hot (1 + 1) * 128 / 64.
    assert [group.max_blocks(workload) for group in groups_of(plan)] == [512, 512, *[32] * 4, *[4] * 4]


@pytest.mark.parametrize(
    ("max_model_len", "num_blocks", "fits"),
    [
        (8192, 160, False),
        (8192, 1000, True),
        # 512 blocks of indexers, 4 * 32 residents, 4 * 4 hot ones, and the null block: 657.
        (32_768, 656, False),
        (32_768, 657, True),
    ],
)
def test_the_gpus_pool_has_to_hold_residents_and_hot_pages_as_well(
    max_model_len: int, num_blocks: int, fits: bool
) -> None:
    def make() -> Plan:
        return make_sparse_plan(
            make_sparse_model(4),
            max_model_len=max_model_len,
            max_in_flight_tokens=2048,
            num_blocks_override=num_blocks,
        )

    if fits:
        assert make().num_blocks == num_blocks
        return
    with pytest.raises(InsufficientMemory):
        make()


@pytest.mark.parametrize(("num_blocks", "max_model_len"), [(657, 32_768), (656, 32_704)])
def test_a_length_that_is_fitted_counts_residents_and_hot_pages(num_blocks: int, max_model_len: int) -> None:
    plan = make_sparse_plan(
        make_sparse_model(4),
        max_model_len=32_768,
        auto_fit_max_model_len=True,
        max_in_flight_tokens=2048,
        num_blocks_override=num_blocks,
    )
    assert plan.max_model_len == max_model_len


@pytest.mark.parametrize(
    ("given", "num_blocks"),
    [
        ({"index_topk": 128}, 4),  # one query, and as much again for reuse
        ({"index_topk": 128, "max_decode_query_len": 3}, 8),
        ({"index_topk": 128, "device_buffer_size": 128}, 2),
        ({"index_topk": 100}, 4),  # 200 tokens begin four blocks
    ],
)
def test_the_hot_buffer_holds_one_step_unless_its_size_is_given(
    given: dict[str, Any], num_blocks: int
) -> None:
    plan = make_sparse_plan(sparse_host=SparseHost(host_pool_bytes=2**30, **given), max_model_len=64)
    assert groups_of(plan)[-1].max_blocks(plan.request.workload()) == num_blocks


def test_the_smaller_of_both_pools_bounds_how_many_requests_run() -> None:
    page = 64 * TOKEN_BYTES
    plan = make_sparse_plan(
        sparse_host=SparseHost(host_pool_bytes=10 * page, index_topk=128),
        max_model_len=64 * 4,
        num_blocks_override=1000,
    )
    assert plan.capacity is not None
    assert plan.capacity.max_concurrency == 10 / 4
    assert plan.longest_model_len == (10 - 2) * 64


# What is refused


@pytest.mark.parametrize(("num_more_blocks", "fits"), [(1, False), (2, True)])
def test_the_hosts_pool_has_to_hold_one_request_and_two_blocks(num_more_blocks: int, fits: bool) -> None:
    num_bytes = (4 + num_more_blocks) * 64 * TOKEN_BYTES
    host = SparseHost(host_pool_bytes=num_bytes, index_topk=128)
    if fits:
        plan = make_sparse_plan(sparse_host=host, max_model_len=4 * 64)
        assert plan.host_pool is not None
        assert plan.host_pool.num_blocks == 4 + num_more_blocks
        return
    with pytest.raises(HostPoolTooSmall, match=r"raise hisparse\.host_pool_bytes to 442368") as refusal:
        make_sparse_plan(sparse_host=host, max_model_len=4 * 64)
    assert refusal.value.figures == {"num_host_blocks": 5, "num_required_blocks": 6}


def test_a_host_pool_as_large_as_a_refusal_says_is_enough() -> None:
    host = SparseHost(host_pool_bytes=442_368, index_topk=128)
    assert make_sparse_plan(sparse_host=host, max_model_len=4 * 64).num_blocks > 1


def test_a_length_is_fitted_to_the_hosts_pool() -> None:
    host = SparseHost(host_pool_bytes=5 * 64 * TOKEN_BYTES, index_topk=128)
    plan = make_sparse_plan(sparse_host=host, max_model_len=4 * 64, auto_fit_max_model_len=True)
    assert plan.max_model_len == 3 * 64


def test_a_host_pool_for_no_length_at_all_is_what_is_refused() -> None:
    host = SparseHost(host_pool_bytes=2 * 64 * TOKEN_BYTES, index_topk=128)
    with pytest.raises(HostPoolTooSmall):
        make_sparse_plan(sparse_host=host, max_model_len=4 * 64, auto_fit_max_model_len=True)


def test_a_buffer_has_to_hold_what_one_step_reads() -> None:
    host = SparseHost(host_pool_bytes=2**30, index_topk=128, device_buffer_size=255, max_decode_query_len=2)
    with pytest.raises(DeviceBufferTooSmall, match=r"raise hisparse\.device_buffer_size") as refusal:
        make_sparse_plan(sparse_host=host)
    assert refusal.value.figures == {"device_buffer_size": 255, "needed_tokens": 256}


@pytest.mark.parametrize(("num_tokens", "fits"), [(2**15, True), (2**15 + 1, False)])
def test_a_buffer_has_to_be_numbered_in_sixteen_bits(num_tokens: int, fits: bool) -> None:
    host = SparseHost(host_pool_bytes=2**30, index_topk=128, device_buffer_size=num_tokens)
    if fits:
        assert make_sparse_plan(sparse_host=host).num_blocks > 1
        return
    with pytest.raises(InvalidRequest, match=r"hisparse\.device_buffer_size: is 32769 tokens"):
        make_sparse_plan(sparse_host=host)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ({"mla": make_sparse()}, "both cache roles, sparse and indexer"),
        ({"indexer": make_small_indexer()}, "both cache roles, sparse and indexer"),
        ({"full": make_full()}, "both cache roles, sparse and indexer"),
        (
            {"mla": make_sparse(model_version="deepseek_v4"), "indexer": make_small_indexer()},
            "not for layers of model version deepseek_v4",
        ),
        (
            {"mla": make_sparse(), "indexer": make_small_indexer(block_size=32)},
            "needs one block size for all MLA layers",
        ),
    ],
    ids=["no indexer", "no sparse layer", "neither", "version", "block sizes"],
)
def test_layers_of_another_sort_are_refused(layers: dict[str, Layer], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=f"hisparse: .*{sentence}"):
        make_sparse_plan(layers)


@pytest.mark.parametrize("layout", [layout for layout in Layout if not layout.is_block_outermost])
def test_blocks_have_to_lie_together(layout: Layout) -> None:
    with pytest.raises(InvalidRequest, match=r"layout: .*such as BLHNC"):
        make_sparse_plan(layout=layout)


def test_layers_that_share_a_buffer_need_one_page_size() -> None:
    follower = make_sparse(head_size=512, is_index_group_leader=False)
    with pytest.raises(IncompatiblePageSizes, match="need one page size") as refusal:
        make_sparse_plan(make_sparse_model() | {"layers.1.mla": follower})
    assert refusal.value.figures == {
        "page_size_bytes": {"layers.0.mla": 64 * TOKEN_BYTES, "layers.1.mla": 64 * 512 * 2}
    }


def test_pages_in_two_places_cannot_be_described_by_slots() -> None:
    with pytest.raises(InvalidRequest, match="tensor_form: slots cannot describe hisparse"):
        make_sparse_plan(tensor_form=TensorForm.SLOTS)


def test_a_gpu_without_memory_is_what_is_refused_whatever_the_hosts() -> None:
    with pytest.raises(NoMemory):
        make_sparse_plan(available_bytes=0, auto_fit_max_model_len=True)


def test_a_host_block_is_counted_as_a_request_needs_it_with_positions_shared_out() -> None:
    # 256 tokens over 2 ranks are 2 blocks of 64 tokens a rank, and 2 are spare.
    pool = SparseHost(host_pool_bytes=4 * 64 * TOKEN_BYTES, index_topk=128)
    plan = make_sparse_plan(
        sparse_host=pool, max_model_len=256, parallel=Parallel(tensor=2, decode_context=2)
    )
    assert plan.host_pool is not None
    assert plan.host_pool.num_blocks == 4


def test_what_was_promoted_is_told_with_sparse_pages_as_well() -> None:
    layers = make_sparse_model() | {"full": make_full(block_size=64), "window": make_window()}
    plan = make_sparse_plan(layers, hybrid_groups=False)
    assert any("hybrid groups are off" in warning for warning in plan.grouping.warnings)
