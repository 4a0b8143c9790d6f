"""Models spread over ranks: what each gets, and what all agree on."""

from typing import Any

import pytest

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import ConflictingLayerSpecs
from blockyard.planning.groups import Group, Grouping
from blockyard.planning.layers import Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.placement import Tensor
from planning.make_layers import (
    PAGE_BYTES,
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


def make_layers(layer: Layer, *numbers: int) -> dict[str, Layer]:
    return {f"layer.{number}": layer for number in numbers}


def region(*numbers: int, num_blocks: int = 10) -> list[Tensor]:
    """Those layers, one after the other from byte 0."""
    return [
        Tensor(
            size=len(numbers) * num_blocks * PAGE_BYTES,
            layers=[f"layer.{number}" for number in numbers],
            layer_stride=num_blocks * PAGE_BYTES,
            block_stride=PAGE_BYTES,
            offset=0,
        )
    ]


TEN_BLOCKS_OF_TWO_LAYERS = 10 * 2 * PAGE_BYTES


# Ranks with the same layers


@pytest.mark.parametrize("second_has", [1, 2])
def test_ranks_with_the_same_layers_get_as_many_blocks_as_the_smaller_memory_holds(second_has: int) -> None:
    layers = make_layers(make_full(), 1, 2)
    plan = make_plan(
        layers,
        layers,
        available_bytes=[TEN_BLOCKS_OF_TWO_LAYERS, second_has * TEN_BLOCKS_OF_TWO_LAYERS],
    )
    assert plan.num_blocks == 10
    for rank in range(2):
        assert names_of(plan, rank) == [["layer.1", "layer.2"]]
        assert tensors_of(plan, rank) == region(1, 2)


def test_ranks_that_describe_a_layer_in_two_ways_are_refused() -> None:
    with pytest.raises(ConflictingLayerSpecs, match="have to agree on it") as refusal:
        make_plan(make_layers(make_full(), 1), make_layers(make_window(), 1))
    assert refusal.value.figures == {"layer": "layer.1"}


# Stages with layers of their own


def test_stages_get_tensors_of_their_own_layers_and_equally_many_blocks() -> None:
    plan = make_plan(
        make_layers(make_full(), 1),
        make_layers(make_full(), 2, 3),
        available_bytes=TEN_BLOCKS_OF_TWO_LAYERS,
    )
    # The first stage's memory holds 20.
    assert plan.num_blocks == 10
    assert names_of(plan, 0) == [["layer.1"]]
    assert names_of(plan, 1) == [["layer.2", "layer.3"]]
    assert tensors_of(plan, 0) == region(1)
    assert tensors_of(plan, 1) == region(2, 3)


def test_stages_of_several_ranks_each_get_the_same_twice() -> None:
    first, last = make_layers(make_full(), 1, 2), make_layers(make_full(), 3)
    plan = make_plan(first, first, last, last, available_bytes=TEN_BLOCKS_OF_TWO_LAYERS)
    assert [tensors_of(plan, rank) for rank in range(4)] == [region(1, 2)] * 2 + [region(3)] * 2


def test_a_stage_has_a_group_without_layers_for_a_kind_it_lacks() -> None:
    plan = make_plan(
        make_layers(make_full(), 1, 2),
        make_layers(make_window(), 3, 4),
        available_bytes=TEN_BLOCKS_OF_TWO_LAYERS,
    )
    assert names_of(plan, 0) == [["layer.1", "layer.2"], []]
    assert names_of(plan, 1) == [[], ["layer.3", "layer.4"]]
    for rank in range(2):
        assert [group.form for group in groups_of(plan, rank)] == [make_full(), make_window()]
    assert tensors_of(plan, 0) == region(1, 2)
    assert tensors_of(plan, 1) == region(3, 4)


def test_a_stage_with_a_share_of_each_kind_has_a_layer_of_each_group() -> None:
    def stage(first: int) -> dict[str, Layer]:
        return make_layers(make_full(), first) | make_layers(make_window(), first + 1, first + 2)

    plan = make_plan(stage(1), stage(4), available_bytes=10 * PAGE_BYTES)
    assert plan.num_blocks == 10
    for rank, first in ((0, 1), (1, 4)):
        numbers = (first, first + 1, first + 2)
        assert names_of(plan, rank) == [[f"layer.{number}"] for number in numbers]
        assert tensors_of(plan, rank) == [tensor for number in numbers for tensor in region(number)]


@pytest.mark.parametrize("second_has", [1, 2])
def test_a_stage_needs_memory_for_its_own_layers_alone(second_has: int) -> None:
    # 512 tokens in 32 blocks, and the null block.
    num_bytes = 33 * PAGE_BYTES
    plan = make_plan(
        make_layers(make_full(), 1),
        make_layers(make_full(), 2),
        max_model_len=512,
        available_bytes=[num_bytes, second_has * num_bytes],
    )
    assert plan.num_blocks == 33
    assert tensors_of(plan, 0) == region(1, num_blocks=33)
    assert tensors_of(plan, 1) == region(2, num_blocks=33)


def test_a_rank_without_any_layer_bounds_nothing() -> None:
    plan = make_plan(make_layers(make_full(), 1), {}, available_bytes=[10 * PAGE_BYTES, 0])
    assert plan.num_blocks == 10
    assert bytes_per_block(plan, 1) == 0
    assert tensors_of(plan, 1) == []


def test_groups_follow_from_the_whole_model() -> None:
    # Of all layers one in three is full; the first stage alone would make one group.
    plan = make_plan(make_layers(make_window(), 1, 2), make_layers(make_full(), 3))
    assert names_of(plan, 0) == [["layer.1"], ["layer.2"], []]


# A rank's part of a group


def test_a_part_of_a_group_keeps_the_order_and_the_form_of_its_layers() -> None:
    grouping = Grouping(groups=[Group.merged(make_layers(make_full(), 1, 2, 3))])
    [part] = grouping.on_rank(["layer.2", "layer.1"])
    assert list(part.layers) == ["layer.1", "layer.2"]
    assert part.form == make_full()


def test_a_part_without_layers_keeps_the_form() -> None:
    groups = [Group.merged(make_layers(make_full(), 1)), Group.merged(make_layers(make_window(), 2))]
    _, part = Grouping(groups=groups).on_rank(["layer.1"])
    assert part.layers == {}
    assert part.form == make_window()
    assert part.page_bytes == 0


def test_a_part_of_a_group_of_several_page_sizes_keeps_each_page() -> None:
    layers = make_layers(make_full(), 1, 3) | {"layer.2": make_full(num_kv_heads=4)}
    part = Group.of(layers).on_rank(["layer.1", "layer.2"])
    assert part.layers == {"layer.1": make_full(), "layer.2": make_full(num_kv_heads=4)}
    assert part.elsewhere == {}


def test_a_group_of_several_page_sizes_lists_its_layers_where_it_has_none() -> None:
    group = Group.of({"mla": make_mla(), "indexer": make_indexer()})
    assert group.on_rank([]).elsewhere == {"mla": make_mla(), "indexer": make_indexer()}
    assert Group.merged(make_layers(make_full(), 1)).on_rank([]).elsewhere == {}


# Tensors of layers that are elsewhere


def make_latent_stages() -> list[dict[str, Layer]]:
    return [{"mla": make_mla(), "indexer": make_indexer()}, {"window": make_window()}]


def test_a_stage_lists_tensors_of_a_packed_group_that_lies_elsewhere() -> None:
    plan = make_plan(*make_latent_stages(), layout=Layout.BLNHC)
    assert [(tensor.layers, tensor.is_elsewhere) for tensor in tensors_of(plan, 0)] == [
        (["mla"], False),
        (["indexer"], False),
        (["window"], True),
    ]
    assert [(tensor.layers, tensor.is_elsewhere) for tensor in tensors_of(plan, 1)] == [
        (["mla"], True),
        (["indexer"], True),
        (["window"], False),
    ]


def test_nothing_is_kept_for_layers_that_are_elsewhere() -> None:
    plan = make_plan(*make_latent_stages(), layout=Layout.BLNHC)
    assert bytes_per_block(plan, 0) == make_mla().page_bytes + make_indexer().page_bytes
    assert bytes_per_block(plan, 1) == PAGE_BYTES
    assert {tensor.size for tensor in tensors_of(plan, 1)} == {PAGE_BYTES * plan.num_blocks}


# How layers are shared out over stages


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "counts"),
    [
        (45, 4, [11, 11, 12, 11]),
        (32, 4, [8, 8, 8, 8]),
        (10, 4, [2, 3, 3, 2]),
        (11, 4, [3, 3, 3, 2]),
        (7, 1, [7]),
        (2, 3, [1, 1, 0]),
    ],
)
def test_layers_left_over_go_to_the_last_stages_but_one(
    num_layers: int, num_stages: int, counts: list[int]
) -> None:
    stages = Parallel(pipeline=num_stages).stages(num_layers)
    assert [len(stage) for stage in stages] == counts
    assert [number for stage in stages for number in stage] == list(range(num_layers))


def test_a_partition_that_is_given_is_taken() -> None:
    assert Parallel(pipeline=2, pipeline_partition=(3, 42)).stages(45) == [range(3), range(3, 45)]


@pytest.mark.parametrize(
    "given",
    [
        {"pipeline": 2, "pipeline_partition": (45,)},
        {"pipeline": 2, "pipeline_partition": (3, 42), "num_hidden_layers": 44},
    ],
    ids=["stages", "layers"],
)
def test_a_partition_has_to_fit_stages_and_layers(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"parallel\.pipeline_partition"):
        Parallel(**given)


def test_a_partition_has_to_add_up_to_the_layers_found() -> None:
    with pytest.raises(InvalidRequest, match="must add up to the layers, 44"):
        Parallel(pipeline=2, pipeline_partition=(3, 42)).stages(44)


def test_ranks_are_stages_times_shards() -> None:
    assert Parallel(tensor=4, pipeline=3).num_ranks == 12
