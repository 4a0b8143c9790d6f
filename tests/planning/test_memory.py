"""Does one request fit: checks, fitted lengths, blocks that are asked for, and requests that run at once."""

from typing import Any

import pytest

from blockyard.planning.capacity import capacity
from blockyard.planning.errors import InsufficientMemory, NoMemory, PlanError
from blockyard.planning.groups import Group, Layers
from blockyard.planning.layers import FullAttention, Layer, SlidingWindow, Workload
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.placement import Tensor
from planning.make_layers import (
    PAGE_BYTES,
    make_full,
    make_hidden,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    tensors_of,
)

TWO_LAYERS = {"layer.1": make_full(), "layer.2": make_full()}
BLOCK_BYTES = 2 * PAGE_BYTES


# One request of full length


def test_a_request_for_all_blocks_does_not_fit_since_the_null_block_is_never_handed_out() -> None:
    # 512 tokens take 32 blocks, and of 32 one is the null block.
    with pytest.raises(InsufficientMemory) as refusal:
        make_plan({"layer": make_full()}, max_model_len=512, available_bytes=32 * PAGE_BYTES)
    assert refusal.value.figures == {
        "rank": 0,
        "needed_bytes": 32 * PAGE_BYTES,
        "available_bytes": 31 * PAGE_BYTES,
        "estimated_max_model_len": 31 * 16,
        "longest_model_len": 31 * 16,
    }


def test_one_block_more_holds_a_request_and_the_null_block() -> None:
    plan = make_plan({"layer": make_full()}, max_model_len=512, available_bytes=33 * PAGE_BYTES)
    assert plan.num_blocks == 33
    assert plan.longest_model_len == 512


def test_the_null_block_is_counted_where_blocks_are_asked_for() -> None:
    with pytest.raises(InsufficientMemory):
        make_plan({"layer": make_full()}, max_model_len=512, num_blocks_override=32)


def test_a_refusal_says_how_much_memory_and_which_length_would_do() -> None:
    layers = {"layer": make_full()}
    with pytest.raises(InsufficientMemory) as refusal:
        make_plan(layers, max_model_len=512, available_bytes=32 * PAGE_BYTES)
    assert str(refusal.value).startswith("rank 0: a request of 512 tokens needs")
    assert f"raise available_memory_bytes to {33 * PAGE_BYTES}" in str(refusal.value)
    assert "lower max_model_len to 496" in str(refusal.value)
    assert make_plan(layers, max_model_len=512, available_bytes=33 * PAGE_BYTES).num_blocks == 33
    assert make_plan(layers, max_model_len=496, available_bytes=32 * PAGE_BYTES).num_blocks == 32


def test_a_refusal_names_no_length_where_none_fits() -> None:
    # Three states a request beside the null block, and room for three blocks in all.
    with pytest.raises(InsufficientMemory) as refusal:
        make_plan({"state": make_mamba()}, available_bytes=3 * PAGE_BYTES)
    assert refusal.value.figures["estimated_max_model_len"] == 0
    assert "max_model_len" not in str(refusal.value)


@pytest.mark.parametrize("available_bytes", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES])
def test_memory_for_the_null_block_at_most_is_no_memory(available_bytes: int) -> None:
    with pytest.raises(NoMemory, match=f"one more of {BLOCK_BYTES} bytes") as refusal:
        make_plan(TWO_LAYERS, available_bytes=available_bytes)
    assert refusal.value.figures == {
        "rank": 0,
        "available_bytes": available_bytes,
        "bytes_per_block": BLOCK_BYTES,
    }


def test_a_refusal_names_the_rank_that_lacks_memory() -> None:
    with pytest.raises(InsufficientMemory) as refusal:
        make_plan(
            {"layer.1": make_full()},
            {"layer.2": make_full()},
            max_model_len=512,
            available_bytes=[100 * PAGE_BYTES, 30 * PAGE_BYTES],
        )
    assert refusal.value.figures["rank"] == 1
    assert refusal.value.figures["estimated_max_model_len"] == 29 * 16


# The longest request


@pytest.mark.parametrize(("max_model_len", "estimated"), [(16_385, 16_384), (16_383, None)])
def test_eight_gib_hold_16384_tokens_of_32_layers(max_model_len: int, estimated: int | None) -> None:
    # 16 * 32 * (128 + 128) * 2 bytes a page, 8 MiB a block: 1,024 blocks, and the null block.
    layer = make_full(num_kv_heads=32, head_size=128, dtype="float16")
    layers = {f"layer.{number}": layer for number in range(32)}
    available_bytes = 2**33 + 2**23
    if estimated is None:
        plan = make_plan(layers, max_model_len=max_model_len, available_bytes=available_bytes)
        assert plan.max_model_len == 16_383
        assert plan.longest_model_len == 16_384
        return
    with pytest.raises(InsufficientMemory) as refusal:
        make_plan(layers, max_model_len=max_model_len, available_bytes=available_bytes)
    assert refusal.value.figures["estimated_max_model_len"] == estimated


@pytest.mark.parametrize(
    ("layers", "num_tokens"),
    [
        ({"full": make_full()}, 31 * 16),
        # 32 blocks beside the null block less three for states.
        ({"full": make_full(), "state": make_mamba()}, 28 * 16),
    ],
)
def test_the_longest_request_is_told_though_a_shorter_one_was_asked(layers: Layers, num_tokens: int) -> None:
    assert make_plan(layers, available_bytes=32 * PAGE_BYTES).longest_model_len == num_tokens


@pytest.mark.parametrize("layer", [make_window(), make_mamba()])
def test_a_request_whose_blocks_have_a_bound_has_no_longest_length(layer: Layer) -> None:
    plan = make_plan({"layer": layer}, max_in_flight_tokens=64, available_bytes=32 * PAGE_BYTES)
    assert plan.longest_model_len is None


def test_a_window_bounds_a_request_only_as_far_as_memory_holds_what_is_in_flight() -> None:
    # 8,192 tokens in flight do not fit 31 blocks; one of them is the window's further block.
    plan = make_plan({"layer": make_window()}, max_in_flight_tokens=8192, available_bytes=32 * PAGE_BYTES)
    assert plan.longest_model_len == 30 * 16


# A length that is fitted


@pytest.mark.parametrize(("num_blocks", "max_model_len"), [(1024, 1024), (65, 1024), (64, 1008), (32, 496)])
def test_a_length_is_cut_to_what_fits(num_blocks: int, max_model_len: int) -> None:
    plan = make_plan(
        TWO_LAYERS,
        max_model_len=1024,
        auto_fit_max_model_len=True,
        available_bytes=num_blocks * BLOCK_BYTES,
    )
    assert plan.max_model_len == max_model_len
    assert plan.num_blocks == num_blocks


def test_memory_for_64_blocks_is_fitted_to_63() -> None:
    plan = make_plan(
        {"layer": make_full()},
        max_model_len=1024,
        auto_fit_max_model_len=True,
        available_bytes=64 * PAGE_BYTES,
    )
    assert plan.max_model_len == 63 * 16


def test_a_fitted_length_leaves_room_for_states() -> None:
    # 64 blocks of tokens, a running state and two for drafts, and the null block.
    plan = make_plan(
        {"state": make_mamba(num_speculative_blocks=2), "full": make_full()},
        max_model_len=8192,
        auto_fit_max_model_len=True,
        available_bytes=(64 + 1 + 2 + 1) * PAGE_BYTES,
    )
    assert plan.max_model_len == 1024


def test_a_length_is_not_fitted_unless_asked() -> None:
    plan = make_plan(TWO_LAYERS, available_bytes=32 * BLOCK_BYTES)
    assert plan.max_model_len == 16


def test_a_length_is_fitted_to_the_blocks_asked_for_not_to_memory() -> None:
    plan = make_plan(
        TWO_LAYERS,
        max_model_len=16_384,
        auto_fit_max_model_len=True,
        num_blocks_override=32,
        available_bytes=1024 * BLOCK_BYTES,
    )
    assert plan.max_model_len == 31 * 16


def test_a_length_is_fitted_to_the_rank_with_least_room() -> None:
    plan = make_plan(
        {"layer.1": make_full()},
        {"layer.2": make_full()},
        max_model_len=1024,
        auto_fit_max_model_len=True,
        available_bytes=[100 * PAGE_BYTES, 33 * PAGE_BYTES],
    )
    assert plan.max_model_len == 512
    assert plan.num_blocks == 33


def test_a_length_cannot_be_fitted_where_not_one_token_fits() -> None:
    with pytest.raises(NoMemory) as refusal:
        make_plan(TWO_LAYERS, auto_fit_max_model_len=True, available_bytes=BLOCK_BYTES)
    assert refusal.value.figures["bytes_per_block"] == BLOCK_BYTES


def test_a_refusal_of_every_length_says_what_one_token_needs() -> None:
    # A block of tokens and three of states, and the null block: five, and there is room for four.
    with pytest.raises(PlanError, match=f"{5 * PAGE_BYTES}"):
        make_plan(
            {"state": make_mamba(), "full": make_full()},
            auto_fit_max_model_len=True,
            available_bytes=4 * PAGE_BYTES,
        )


# Blocks that are asked for


def test_blocks_that_are_asked_for_win_over_memory() -> None:
    plan = make_plan(TWO_LAYERS, num_blocks_override=16, available_bytes=32 * BLOCK_BYTES)
    assert plan.num_blocks == 16
    assert tensors_of(plan) == [
        Tensor(
            size=16 * BLOCK_BYTES,
            layers=["layer.1", "layer.2"],
            layer_stride=16 * PAGE_BYTES,
            block_stride=PAGE_BYTES,
            offset=0,
        )
    ]


def test_more_blocks_can_be_asked_for_than_memory_holds() -> None:
    assert make_plan(TWO_LAYERS, num_blocks_override=99, available_bytes=BLOCK_BYTES).num_blocks == 99


def test_blocks_that_are_asked_for_have_to_hold_one_request() -> None:
    # 16,384 tokens take 1,024 blocks; memory for them does not help.
    with pytest.raises(InsufficientMemory) as refusal:
        make_plan(
            TWO_LAYERS, max_model_len=16_384, num_blocks_override=32, available_bytes=2048 * BLOCK_BYTES
        )
    assert refusal.value.figures["needed_bytes"] == 1024 * BLOCK_BYTES
    assert refusal.value.figures["available_bytes"] == 31 * BLOCK_BYTES


@pytest.mark.parametrize(("num_blocks", "error"), [(32, InsufficientMemory), (1, NoMemory)])
def test_a_refusal_of_the_blocks_asked_for_names_them_and_not_memory(
    num_blocks: int, error: type[Exception]
) -> None:
    with pytest.raises(error, match="num_blocks_override") as refusal:
        make_plan(TWO_LAYERS, max_model_len=16_384, num_blocks_override=num_blocks)
    assert "available_memory_bytes" not in str(refusal.value)


# Models that keep nothing


@pytest.mark.parametrize("asked", [{}, {"auto_fit_max_model_len": True}, {"num_blocks_override": 9}])
def test_a_model_without_layers_has_the_null_block_alone(asked: dict[str, Any]) -> None:
    plan = make_plan({}, available_bytes=0, **asked)
    assert plan.num_blocks == 1
    assert plan.grouping.groups == ()
    assert tensors_of(plan) == []
    assert plan.capacity is None
    assert plan.longest_model_len is None
    assert plan.max_model_len == 16


# How many requests run at once

WIDE: dict[str, Any] = {"num_kv_heads": 32, "head_size": 128, "dtype": "float16"}
FULL = make_full(**WIDE)
WINDOW = make_window(**WIDE, sliding_window=1024)
LONG = Workload(max_model_len=16_384, max_in_flight_tokens=1024)
"""Full attention holds 1,024 blocks of such a request; a window of 1,024 tokens 2,047 / 16 and one, 129."""


def group_of(layer: FullAttention | SlidingWindow, num_layers: int, *, is_merged: bool = True) -> Group:
    layers = {f"{layer.kind}.{number}": layer for number in range(num_layers)}
    return Group.merged(layers) if is_merged else Group.of(layers)


@pytest.mark.parametrize(
    ("groups", "num_blocks", "max_concurrency"),
    [
        pytest.param([group_of(FULL, 32)], 1536, 1.5, id="full"),
        pytest.param([group_of(WINDOW, 32)], 129 * 3, 3, id="window"),
        pytest.param([group_of(FULL, 32), group_of(WINDOW, 32)], 1153 * 3, 3, id="both"),
        pytest.param([group_of(FULL, 32), group_of(WINDOW, 2)], 1153 * 3, 3, id="few windows"),
        pytest.param(
            [group_of(FULL, 4, is_merged=False), group_of(WINDOW, 2)], 1153 * 3, 3, id="pages of their own"
        ),
    ],
)
def test_a_request_takes_the_blocks_of_each_group_whatever_its_layers(
    groups: list[Group], num_blocks: int, max_concurrency: float
) -> None:
    got = capacity(groups, num_blocks, None, LONG)
    assert got is not None
    assert got.max_concurrency == max_concurrency
    assert got.num_tokens == max_concurrency * 16_384


def test_a_plan_tells_the_same_capacity_as_its_groups() -> None:
    plan = make_plan(
        {"full": FULL, "window": WINDOW},
        max_model_len=16_384,
        max_in_flight_tokens=1024,
        num_blocks_override=1153 * 3,
    )
    assert plan.capacity == capacity(plan.grouping.groups, 1153 * 3, None, LONG)


# Tensor-parallel ranks that keep the same content

GROUPED_QUERIES = make_full(num_kv_heads=8)
WINDOWED_QUERIES = make_window(num_kv_heads=8, sliding_window=128)


@pytest.mark.parametrize(
    ("layers", "num_replicas"),
    [
        pytest.param([make_mla(), make_mla()], 4, id="latent"),
        pytest.param([make_mla(), make_mla(), make_window_mla(), make_window_mla()], 4, id="latent windows"),
        pytest.param([GROUPED_QUERIES, GROUPED_QUERIES], 1, id="grouped queries"),
        pytest.param([make_mla(), GROUPED_QUERIES], 1, id="both in one table"),
        pytest.param([make_mla(), make_mla(), WINDOWED_QUERIES, WINDOWED_QUERIES], 1, id="both"),
    ],
)
def test_ranks_keep_the_same_of_a_model_only_if_they_do_of_every_layer(
    layers: list[Layer], num_replicas: int
) -> None:
    named = {f"layer.{number}": layer for number, layer in enumerate(layers)}
    plan = make_plan(named, parallel=Parallel(tensor=4))
    assert plan.ranks[0].num_replicas == num_replicas


@pytest.mark.parametrize(
    ("layers", "tensor", "decode_context", "num_replicas"),
    [
        pytest.param([make_mla()], 8, 1, 8, id="latent"),
        pytest.param([make_mla()], 8, 2, 1, id="latent, positions spread"),
        pytest.param([make_mla(dcp_sharded=False)], 8, 2, 8, id="latent, kept whole"),
        pytest.param([make_mla(max_tp_shards=None)], 8, 1, 1, id="no bound"),
        pytest.param([GROUPED_QUERIES.but(max_tp_shards=2)], 8, 1, 4, id="two shards"),
        pytest.param([GROUPED_QUERIES.but(max_tp_shards=8)], 4, 1, 1, id="more shards than ranks"),
        pytest.param([make_mla(), WINDOWED_QUERIES.but(max_tp_shards=4)], 8, 1, 2, id="both"),
        pytest.param([make_hidden()], 8, 1, 1, id="hidden state"),
        pytest.param([make_mamba()], 8, 1, 1, id="state"),
    ],
)
def test_ranks_beyond_a_layers_shards_keep_the_same(
    layers: list[Layer], tensor: int, decode_context: int, num_replicas: int
) -> None:
    plan = make_plan(
        {f"layer.{number}": layer for number, layer in enumerate(layers)},
        layout=Layout.BLNHC,
        parallel=Parallel(tensor=tensor, decode_context=decode_context),
    )
    assert plan.ranks[0].num_replicas == num_replicas


# Ranks that share positions


def test_positions_are_spread_over_ranks_that_keep_the_same_heads() -> None:
    plan = make_plan({"l": make_full(max_tp_shards=2)}, parallel=Parallel(tensor=8, decode_context=4))
    assert not plan.grouping.warnings
    plan = make_plan({"l": make_full(max_tp_shards=2)}, parallel=Parallel(tensor=8, decode_context=8))
    assert any("4 of 8 tensor ranks keep the same heads" in warning for warning in plan.grouping.warnings)


# What is to be told with a plan


def test_more_blocks_than_memory_holds_are_warned_of() -> None:
    plan = make_plan({"l": make_full()}, num_blocks_override=100, available_bytes=50 * PAGE_BYTES)
    missing = 50 * PAGE_BYTES
    assert any(f"{missing} bytes more than rank 0 has" in warning for warning in plan.grouping.warnings)


def test_remarks_of_the_request_are_told_first() -> None:
    plan = make_plan({"l": make_full()}, remarks=("as asked",))
    assert plan.grouping.warnings == ["as asked"]
