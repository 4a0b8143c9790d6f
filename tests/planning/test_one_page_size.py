"""Groups of one page size: how pages are brought to it, and how layers are shared out."""

import pytest

from blockyard.planning.errors import IncompatiblePageSizes
from blockyard.planning.grouping.one_page_size import to_one_page_size
from blockyard.planning.layers import Layer
from blockyard.planning.placement import Tensor
from planning.make_layers import (
    PAGE_BYTES,
    bytes_per_block,
    layer_of,
    make_full,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    names_of,
    tensors_of,
)


def make_hybrid(num_full: int, num_windows: int) -> dict[str, Layer]:
    """Full layers, then windows, numbered on from 1."""
    full: dict[str, Layer] = {f"layer.{number}": make_full() for number in range(1, num_full + 1)}
    windows = range(num_full + 1, num_full + num_windows + 1)
    return full | {f"layer.{number}": make_window() for number in windows}


def numbered(*numbers: int) -> list[str]:
    return [f"layer.{number}" for number in numbers]


def region(*numbers: int, num_blocks: int, widest: int) -> Tensor:
    """Layers one after the other from byte 0, in an allocation for ``widest`` of them."""
    return Tensor(
        size=PAGE_BYTES * num_blocks * widest,
        layers=numbered(*numbers),
        layer_stride=PAGE_BYTES * num_blocks,
        block_stride=PAGE_BYTES,
        offset=0,
    )


# Layers of one kind


@pytest.mark.parametrize("layer", [make_full(), make_window()])
def test_layers_of_one_kind_are_one_group(layer: Layer) -> None:
    plan = make_plan({"layer.1": layer, "layer.2": layer}, available_bytes=PAGE_BYTES * 2 * 32)
    assert plan.num_blocks == 32
    assert names_of(plan) == [numbered(1, 2)]
    assert tensors_of(plan) == [region(1, 2, num_blocks=32, widest=2)]
    assert layer_of(plan, "layer.2") == layer


def test_layers_of_one_kind_and_two_page_sizes_are_one_group_packed_densely() -> None:
    layers = {"wide": make_full(head_size=128), "narrow": make_full()}
    plan = make_plan(layers, available_bytes=PAGE_BYTES * 3 * 32)
    assert plan.num_blocks == 32
    assert names_of(plan) == [["wide", "narrow"]]
    size = PAGE_BYTES * 3 * 32
    # The wide layer's 32 pages, each of twice the bytes, come first.
    assert tensors_of(plan) == [
        Tensor(
            size=size,
            layers=["wide"],
            layer_stride=PAGE_BYTES * 2 * 32,
            block_stride=PAGE_BYTES * 2,
            offset=0,
        ),
        Tensor(
            size=size,
            layers=["narrow"],
            layer_stride=PAGE_BYTES * 32,
            block_stride=PAGE_BYTES,
            offset=PAGE_BYTES * 2 * 32,
        ),
    ]


# How layers are shared out


def test_two_kinds_are_two_groups_in_the_same_bytes() -> None:
    plan = make_plan(make_hybrid(1, 1), available_bytes=PAGE_BYTES * 2 * 32)
    assert plan.num_blocks == 64
    assert names_of(plan) == [numbered(1), numbered(2)]
    assert tensors_of(plan) == [region(1, num_blocks=64, widest=1), region(2, num_blocks=64, widest=1)]


def test_the_fewest_layers_of_a_kind_tell_the_size_of_groups() -> None:
    plan = make_plan(make_hybrid(2, 4), available_bytes=PAGE_BYTES * 2 * 32)
    assert plan.num_blocks == 32
    assert names_of(plan) == [numbered(1, 2), numbered(3, 5), numbered(4, 6)]
    assert tensors_of(plan) == [
        region(1, 2, num_blocks=32, widest=2),
        region(3, 5, num_blocks=32, widest=2),
        region(4, 6, num_blocks=32, widest=2),
    ]
    assert plan.grouping.warnings == []


def test_layers_that_do_not_fill_their_groups_are_padded() -> None:
    plan = make_plan(make_hybrid(3, 7), available_bytes=PAGE_BYTES * 3 * 32)
    assert plan.num_blocks == 32
    assert names_of(plan) == [numbered(1, 2, 3), numbered(4, 7, 10), numbered(5, 8), numbered(6, 9)]
    assert tensors_of(plan) == [
        region(1, 2, 3, num_blocks=32, widest=3),
        region(4, 7, 10, num_blocks=32, widest=3),
        region(5, 8, num_blocks=32, widest=3),
        region(6, 9, num_blocks=32, widest=3),
    ]


def test_padding_is_told_with_what_it_may_waste() -> None:
    # 7 windows in 3 groups of 3: 2 places of 9 stay empty, 2 / 7 of what the windows take.
    assert make_plan(make_hybrid(3, 7)).grouping.warnings == [
        "groups of 3 layers: the 7 layers like 'layer.4' are padded by 2, which may waste 29% of their memory"
    ]


def test_a_few_more_layers_of_one_kind_make_one_group_and_pad_the_other() -> None:
    plan = make_plan(make_hybrid(6, 5), available_bytes=PAGE_BYTES * 6 * 32)
    assert plan.num_blocks == 32
    assert names_of(plan) == [numbered(*range(1, 7)), numbered(*range(7, 12))]
    assert tensors_of(plan) == [
        region(*range(1, 7), num_blocks=32, widest=6),
        region(*range(7, 12), num_blocks=32, widest=6),
    ]


@pytest.mark.parametrize(("num_windows", "num_groups"), [(14, 2), (15, 3), (20, 3), (21, 4)])
def test_half_as_many_layers_more_are_no_longer_a_few(num_windows: int, num_groups: int) -> None:
    assert len(names_of(make_plan(make_hybrid(10, num_windows)))) == num_groups


def test_layers_of_a_kind_go_to_its_groups_in_turn() -> None:
    # So that a stage with the first half of the layers has half of each group.
    groups = names_of(make_plan(make_hybrid(2, 6)))
    assert groups == [numbered(1, 2), numbered(3, 6), numbered(4, 7), numbered(5, 8)]


def test_full_layers_that_compute_with_a_window_share_a_group_with_the_others() -> None:
    layers = {"full": make_full(), "promoted": make_full(sliding_window=8)}
    plan = make_plan(layers | {"window.0": make_window(), "window.1": make_window()})
    assert names_of(plan) == [["full", "promoted"], ["window.0", "window.1"]]
    assert layer_of(plan, "full") == make_full(sliding_window=8)


# How pages are brought to one size


def test_a_block_of_more_tokens_brings_a_small_page_to_the_largest() -> None:
    plan = make_plan(
        {"layer.1": make_full(), "layer.2": make_window(head_size=32)}, available_bytes=PAGE_BYTES * 32
    )
    assert plan.num_blocks == 32
    assert tensors_of(plan) == [region(1, num_blocks=32, widest=1), region(2, num_blocks=32, widest=1)]
    assert layer_of(plan, "layer.1") == make_full()
    assert layer_of(plan, "layer.2") == make_window(head_size=32, block_size=32)


def test_a_page_that_does_not_divide_the_largest_is_padded() -> None:
    window = make_window(head_size=96)
    plan = make_plan({"full": make_full(), "window": window}, available_bytes=PAGE_BYTES * 2 * 32)
    # 1.5 times a page of 64 elements: 64 / 1.5 = 42.7 blocks.
    assert plan.num_blocks == 42
    assert [(tensor.layers, tensor.block_stride) for tensor in tensors_of(plan)] == [
        (["full"], window.page_bytes),
        (["window"], window.page_bytes),
    ]
    assert layer_of(plan, "full") == make_full(page_size_padded=window.page_bytes)
    assert layer_of(plan, "window") == window


def test_padding_keeps_block_size_and_content() -> None:
    target = make_full(num_kv_heads=1, head_size=192, dtype="bfloat16")
    draft = make_window(num_kv_heads=1, head_size=128, dtype="bfloat16", sliding_window=1024)
    paged = to_one_page_size({"target": target, "draft": draft}, [])
    assert paged["target"] == target
    assert paged["draft"] == draft.but(page_size_padded=target.page_bytes)
    assert paged["draft"].block_size == draft.block_size
    assert paged["draft"].content_bytes == draft.content_bytes


def test_a_padded_page_that_grows_with_its_block_stays_padded() -> None:
    layers = {
        "small": make_full(head_size=48, page_size_padded=PAGE_BYTES),
        "large": make_full(head_size=128),
    }
    small = to_one_page_size(layers, [])["small"]
    assert (small.block_size, small.page_size_padded) == (32, 2 * PAGE_BYTES)
    assert small.content_bytes == 2 * make_full(head_size=48).page_bytes


def test_pages_of_one_size_are_left_alone() -> None:
    layers = {"state": make_mamba(), "full": make_full()}
    assert to_one_page_size(layers, []) == layers


def test_a_state_is_padded_since_it_does_not_grow_with_its_block() -> None:
    draft = make_full(num_kv_heads=4)
    paged = to_one_page_size({"state": make_mamba(), "full": make_full(), "draft": draft}, [])
    assert paged["state"] == make_mamba(page_size_padded=2 * PAGE_BYTES)
    assert paged["full"] == make_full(block_size=32)
    assert paged["draft"] == draft


def test_a_state_that_is_padded_is_padded_further() -> None:
    state = make_mamba(shapes=((2, 256), (3, 32, 32)), page_size_padded=PAGE_BYTES)
    paged = to_one_page_size({"state": state, "draft": make_full(num_kv_heads=4)}, [])
    assert paged["state"] == state.but(page_size_padded=2 * PAGE_BYTES)


def test_a_state_need_not_divide_the_largest_page() -> None:
    state = make_mamba(shapes=((6144,),), dtypes=("float32",))
    assert state.page_bytes == 24_576
    paged = to_one_page_size({"state": state, "draft": make_full(num_kv_heads=4)}, [])
    assert paged["state"].page_bytes == 32_768


def test_an_attention_page_need_not_divide_the_largest_page() -> None:
    full = make_full(block_size=24)
    assert full.page_bytes == 24_576
    paged = to_one_page_size({"full": full, "draft": make_full(num_kv_heads=4)}, [])
    assert paged["full"] == full.but(page_size_padded=32_768)


def test_the_smallest_page_of_a_plan_grows_with_the_state_beside_it() -> None:
    layers = {"state": make_mamba(), "full": make_full(), "draft": make_full(num_kv_heads=4, block_size=32)}
    plan = make_plan(layers)
    assert bytes_per_block(plan) == 4 * PAGE_BYTES
    assert layer_of(plan, "state").page_bytes == 4 * PAGE_BYTES
    assert layer_of(plan, "full").block_size == 64


def test_a_latent_page_cannot_be_padded() -> None:
    layers = {"mla": make_mla(), "state": make_mamba(shapes=((512, 1024),), dtypes=("float32",))}
    with pytest.raises(
        IncompatiblePageSizes, match="choose a block-outermost layout such as BLHNC"
    ) as refusal:
        make_plan(layers)
    assert refusal.value.figures == {"page_size_bytes": {"mla": 16 * 576 * 4, "state": 2**21}}


def test_a_latent_page_can_grow_with_its_block() -> None:
    layers = {"mla": make_mla(), "window": make_window_mla(head_size=1152)}
    assert layer_of(make_plan(layers), "mla") == make_mla(block_size=32)


def test_equal_pages_of_a_latent_model_and_its_draft_make_two_plain_groups() -> None:
    layers = {"target": make_mla(), "draft": make_window(num_kv_heads=1, head_size=288)}
    plan = make_plan(layers)
    assert names_of(plan) == [["target"], ["draft"]]
    assert all(group.is_merged for group in plan.grouping.groups)


# Recurrent layers beside latent ones without an indexer


def make_linear(state: Layer) -> dict[str, Layer]:
    """27 layers: of each four the last is latent, and so is the last of all."""
    return {
        f"layers.{number}": make_mla(block_size=1024, dtype="bfloat16")
        if number % 4 == 3 or number == 26
        else state
        for number in range(27)
    }


def test_states_are_padded_to_latent_pages_and_shared_out_over_their_number() -> None:
    # 7 latent layers; 20 states take 3 groups of at most 7.
    plan = make_plan(
        make_linear(make_mamba()), max_model_len=8192, available_bytes=100 * 7 * 1024 * 576 * 2 + 1
    )
    assert [len(names) for names in names_of(plan)] == [7, 7, 6, 7]
    assert bytes_per_block(plan) == 7 * 1024 * 576 * 2
    assert plan.num_blocks == 100
    assert layer_of(plan, "layers.0").page_bytes == 1024 * 576 * 2


def test_groups_of_states_and_latent_layers_begin_in_the_same_bytes() -> None:
    plan = make_plan(make_linear(make_mamba()), max_model_len=8192)
    assert len(tensors_of(plan)) == 4
    assert {(t.offset, t.layer_stride, t.size) for t in tensors_of(plan)} == {
        (0, 1024 * 576 * 2 * plan.num_blocks, 7 * 1024 * 576 * 2 * plan.num_blocks)
    }


def test_states_larger_than_latent_pages_are_refused() -> None:
    state = make_mamba(shapes=((512, 1024),), dtypes=("float32",))  # 2 MiB beside 1.125 MiB
    with pytest.raises(IncompatiblePageSizes) as refusal:
        make_plan(make_linear(state), max_model_len=8192)
    pages = refusal.value.figures["page_size_bytes"]
    assert pages["layers.0"] == 2**21
    assert pages["layers.3"] == 1024 * 576 * 2
