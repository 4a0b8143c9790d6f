"""Groups of several page sizes, side by side in a block."""

from typing import Any

import pytest

from blockyard.planning.grouping.packed import least_padding
from blockyard.planning.groups import Layers
from blockyard.planning.layers import CircularBuffer, Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan
from planning.make_layers import (
    PAGE_BYTES,
    bytes_per_block,
    layer_of,
    make_full,
    make_hidden,
    make_indexer,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    names_of,
    offset_of,
    tensor_of,
)

MLA_PAGE = 16 * 576 * 4
INDEXER_PAGE = 16 * 132


def make_packed_plan(layers: Layers, **asked: Any) -> Plan:
    return make_plan(layers, layout=Layout.BLNHC, **asked)


def make_latent_model(num_latent: int, num_windows: int) -> dict[str, Layer]:
    layers: dict[str, Layer] = {}
    for number in range(num_latent):
        layers[f"mla.{number}"] = make_mla()
        layers[f"indexer.{number}"] = make_indexer()
    windows = range(num_windows)
    return layers | {f"window.{number}": make_window_mla(head_size=1024) for number in windows}


def named(kind: str, *numbers: int) -> list[str]:
    return [f"{kind}.{number}" for number in numbers]


def test_a_repeated_pattern_stays_whole_and_other_layers_are_split_to_as_many_repeats() -> None:
    # Three times an MLA layer and its indexer; five windows take two groups of up to three.
    layers = make_latent_model(3, 5)
    assert names_of(make_packed_plan(layers)) == [
        list(layers)[:6],
        named("window", 0, 2, 4),
        named("window", 1, 3),
    ]


def test_each_layer_is_in_one_group() -> None:
    layers = make_latent_model(3, 5)
    names = [name for group in names_of(make_packed_plan(layers)) for name in group]
    assert sorted(names) == sorted(layers)


def test_pages_keep_their_sizes() -> None:
    layers = make_latent_model(3, 5)
    plan = make_packed_plan(layers)
    assert {name: layer_of(plan, name) for name in layers} == layers


def test_a_block_is_as_wide_as_the_widest_group() -> None:
    plan = make_packed_plan(make_latent_model(3, 5))
    widest = 3 * 16 * 1024 * 4  # three windows; the pattern takes 3 * (36,864 + 2,112) = 116,928
    assert bytes_per_block(plan) == widest
    assert {tensor_of(plan, name).block_stride for name in ("mla.0", "window.1")} == {widest}


def test_layers_of_a_group_lie_side_by_side_in_a_block_equal_ones_together() -> None:
    plan = make_packed_plan(make_latent_model(3, 5))
    assert [offset_of(plan, f"mla.{number}") for number in range(3)] == [0, MLA_PAGE, 2 * MLA_PAGE]
    assert offset_of(plan, "indexer.0") == 3 * MLA_PAGE
    assert offset_of(plan, "indexer.2") == 3 * MLA_PAGE + 2 * INDEXER_PAGE
    assert offset_of(plan, "window.0") == offset_of(plan, "window.1") == 0


@pytest.mark.parametrize("num_windows", [3, 6, 9])
def test_windows_that_come_in_multiples_of_the_pattern_fill_their_groups(num_windows: int) -> None:
    groups = names_of(make_packed_plan(make_latent_model(3, num_windows)))
    assert [len(names) for names in groups] == [6] + [3] * (num_windows // 3)


def test_a_larger_split_is_chosen_where_it_pads_less() -> None:
    # Two repeats and five windows: groups of 2 pad 1, of 3 pad 1 + 1, of 4 pad 2 + 3, of 5 pad 3.
    groups = names_of(make_packed_plan(make_latent_model(2, 5)))
    assert [len(names) for names in groups] == [4, 2, 2, 1]


@pytest.mark.parametrize(
    ("values", "at_least", "size"),
    [
        ([3, 5], 3, 3),  # 3 pads 5 to 6; 4 pads both, 1 + 3; 5 pads 3 to 5
        ([4, 4], 1, 4),  # 1, 2 and 4 pad nothing: the largest
        ([10, 21], 10, 11),  # 10 pads 9; 11 pads 1 + 1
        ([2, 3], 5, 5),  # no less than what is asked
        ([6], 1, 6),
    ],
)
def test_the_size_with_the_least_padding_is_the_largest_of_equals(
    values: list[int], at_least: int, size: int
) -> None:
    assert least_padding(values, at_least=at_least) == size


def test_a_bucket_that_is_no_pattern_stays_whole() -> None:
    # Two MLA layers and one indexer do not repeat.
    layers = {
        "mla.0": make_mla(),
        "mla.1": make_mla(),
        "indexer.0": make_indexer(),
        **{f"window.{number}": make_window_mla(head_size=16) for number in range(3)},
    }
    assert names_of(make_packed_plan(layers)) == [list(layers)[:3], list(layers)[3:]]


def test_states_are_split_so_far_that_they_do_not_widen_a_block() -> None:
    # Two full pages of 32 KiB; four states of 16 KiB fit them, the fifth takes a group of its own.
    layers: dict[str, Layer] = {f"full.{number}": make_full(head_size=128) for number in range(2)}
    layers |= {f"state.{number}": make_mamba() for number in range(5)}
    plan = make_packed_plan(layers)
    assert names_of(plan) == [named("full", 0, 1), named("state", 0, 2, 4), named("state", 1, 3)]
    assert bytes_per_block(plan) == 4 * PAGE_BYTES


def test_states_larger_than_all_other_pages_get_a_group_each() -> None:
    layers: dict[str, Layer] = {"full": make_full()}
    layers |= {f"state.{number}": make_mamba(shapes=((8192,),), dtypes=("float32",)) for number in range(3)}
    plan = make_packed_plan(layers)
    assert names_of(plan) == [["full"], ["state.0"], ["state.1"], ["state.2"]]
    assert bytes_per_block(plan) == 2 * PAGE_BYTES


def test_circular_buffers_are_split_like_states() -> None:
    buffer = CircularBuffer(block_size=4, num_kv_heads=1, head_size=512, head_size_v=0, dtype="float32")
    layers: dict[str, Layer] = {"full": make_full()}
    layers |= {f"buffer.{number}": buffer for number in range(4)}  # 8 KiB each
    assert names_of(make_packed_plan(layers)) == [
        ["full"],
        named("buffer", 0, 2),
        named("buffer", 1, 3),
    ]


def test_windows_are_split_like_states_where_no_pattern_sets_the_width() -> None:
    layers: dict[str, Layer] = {"full": make_full(head_size=128)}
    layers |= {f"window.{number}": make_window() for number in range(4)}
    plan = make_packed_plan(layers)
    assert names_of(plan) == [["full"], named("window", 0, 2), named("window", 1, 3)]
    assert bytes_per_block(plan) == 2 * PAGE_BYTES


def test_states_of_several_sizes_lose_no_layer_when_they_are_split() -> None:
    buffers = [
        CircularBuffer(block_size=4, num_kv_heads=1, head_size=size, head_size_v=0, dtype="float32")
        for size in (512, 512, 512, 256)
    ]
    layers: dict[str, Layer] = {"full": make_full()}
    layers |= {f"buffer.{number}": buffer for number, buffer in enumerate(buffers)}
    names = [name for group in names_of(make_packed_plan(layers)) for name in group]
    assert sorted(names) == sorted(layers)


def test_pages_of_one_size_are_not_packed_but_shared_out() -> None:
    layers = {"full": make_full(), "window.0": make_window(), "window.1": make_window()}
    assert names_of(make_packed_plan(layers)) == [["full"], ["window.0"], ["window.1"]]


def test_a_hidden_state_is_a_group_of_its_own_and_keeps_its_page() -> None:
    layers = {"full": make_full(), "window": make_window(head_size=32), "hidden": make_hidden()}
    plan = make_packed_plan(layers)
    assert names_of(plan) == [["full"], ["window"], ["hidden"]]
    assert layer_of(plan, "hidden") == make_hidden()
    assert bytes_per_block(plan) == make_hidden().page_bytes


def test_states_of_several_sizes_do_not_widen_a_block() -> None:
    layers: dict[str, Layer] = {f"mla.{n}": make_mla(dtype="uint8") for n in range(2)}
    layers |= {f"ring.{n}": make_ring(head_size=size) for n, size in enumerate((8, 8, 320, 320))}
    alone = make_plan({name: layer for name, layer in layers.items() if "mla" in name}, layout=Layout.BLHNC)
    assert bytes_per_block(make_plan(layers, layout=Layout.BLHNC)) == bytes_per_block(alone)


def make_ring(**sizes: Any) -> CircularBuffer:
    return CircularBuffer(
        **{"block_size": 16, "num_kv_heads": 1, "dtype": "uint8", "head_size_v": 0, **sizes}
    )
