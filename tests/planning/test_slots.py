"""Plans described by slots: a page of every block, and the layers that share it."""

from typing import Any

import pytest

from blockyard.planning.errors import LayoutCannotExpress
from blockyard.planning.groups import Layers
from blockyard.planning.layers import Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.placement import Slot
from blockyard.planning.planner import Plan
from blockyard.planning.request import TensorForm
from planning.make_layers import (
    PAGE_BYTES,
    bytes_per_block,
    make_full,
    make_indexer,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    names_of,
    slots_of,
)

MLA_PAGE = 16 * 576 * 4
INDEXER_PAGE = 16 * 132


def make_slot_plan(*ranks: Layers, **asked: Any) -> Plan:
    return make_plan(*ranks, **{"layout": Layout.BLNHC, "tensor_form": TensorForm.SLOTS, **asked})


def make_hybrid(*, num_full: int, num_windows: int) -> dict[str, Layer]:
    full = {f"full.{number}": make_full() for number in range(num_full)}
    return full | {f"window.{number}": make_window() for number in range(num_windows)}


def shared(plan: Plan, rank: int = 0) -> list[tuple[int, list[str]]]:
    """Each slot's offset and layers."""
    return [(slot.offset, list(slot.shared_by)) for slot in slots_of(plan, rank)]


def test_the_layers_of_one_group_have_a_slot_each() -> None:
    plan = make_slot_plan({"first": make_full(), "second": make_full()}, available_bytes=10 * 2 * PAGE_BYTES)
    size = 10 * 2 * PAGE_BYTES
    assert slots_of(plan) == [
        Slot(size=size, shared_by=["first"], offset=0, block_stride=2 * PAGE_BYTES),
        Slot(size=size, shared_by=["second"], offset=PAGE_BYTES, block_stride=2 * PAGE_BYTES),
    ]


def test_the_layers_at_one_place_of_each_group_share_a_slot() -> None:
    layers = make_hybrid(num_full=2, num_windows=4)
    assert shared(make_slot_plan(layers)) == [
        (0, ["full.0", "window.0", "window.1"]),
        (PAGE_BYTES, ["full.1", "window.2", "window.3"]),
    ]


def test_a_group_with_fewer_layers_leaves_the_last_slots_to_others() -> None:
    layers = make_hybrid(num_full=4, num_windows=3)
    assert shared(make_slot_plan(layers))[2:] == [
        (2 * PAGE_BYTES, ["full.2", "window.2"]),
        (3 * PAGE_BYTES, ["full.3"]),
    ]


def test_only_pages_of_one_size_share_a_slot() -> None:
    # MLA 36,864 bytes, indexer 2,112, window 65,536: two repeats, so two groups of windows.
    layers: dict[str, Layer] = {}
    for number in range(2):
        layers[f"mla.{number}"] = make_mla()
        layers[f"indexer.{number}"] = make_indexer()
    layers |= {f"window.{number}": make_window_mla(head_size=1024) for number in range(4)}
    plan = make_slot_plan(layers)
    assert [len(names) for names in names_of(plan)] == [4, 2, 2]
    first_window = 2 * MLA_PAGE + 2 * INDEXER_PAGE
    assert shared(plan) == [
        (0, ["mla.0"]),
        (MLA_PAGE, ["mla.1"]),
        (2 * MLA_PAGE, ["indexer.0"]),
        (2 * MLA_PAGE + INDEXER_PAGE, ["indexer.1"]),
        (first_window, ["window.0", "window.1"]),
        (first_window + 65_536, ["window.2", "window.3"]),
    ]


def test_a_block_is_as_wide_as_all_slots_together() -> None:
    plan = make_slot_plan(
        {"full": make_full(head_size=128), "window": make_window()}, available_bytes=10 * 3 * PAGE_BYTES
    )
    assert bytes_per_block(plan) == 3 * PAGE_BYTES
    assert {slot.block_stride for slot in slots_of(plan)} == {3 * PAGE_BYTES}
    assert {slot.size for slot in slots_of(plan)} == {30 * PAGE_BYTES}
    assert plan.num_blocks == 10


def test_the_same_block_is_narrower_where_groups_lie_over_each_other() -> None:
    layers = {"full": make_full(head_size=128), "window": make_window()}
    assert bytes_per_block(make_plan(layers, layout=Layout.BLNHC)) == 2 * PAGE_BYTES


def test_a_block_is_widened_to_its_layers_alignment() -> None:
    plan = make_slot_plan({"full": make_full(block_stride_alignment=20_000)})
    assert bytes_per_block(plan) == 20_000


def test_states_share_the_slots_of_latent_layers_and_none_of_the_indexers() -> None:
    layers: dict[str, Layer] = {
        "layers.0.state": make_mamba(),
        "layers.1.state": make_mamba(),
        "layers.2.mla": make_mla(),
        "layers.2.indexer": make_indexer(tokens_per_state=16),
    }
    plan = make_slot_plan(layers)
    assert shared(plan) == [
        (0, ["layers.2.mla", "layers.0.state", "layers.1.state"]),
        (MLA_PAGE, ["layers.2.indexer"]),
    ]
    assert bytes_per_block(plan) == MLA_PAGE + 132


def test_a_rank_has_slots_for_its_own_layers() -> None:
    plan = make_slot_plan({"full.0": make_full()}, {"full.1": make_full(), "window": make_window()})
    assert shared(plan, 0) == [(0, ["full.0"])]
    assert shared(plan, 1) == [(0, ["full.1", "window"])]


def test_a_model_without_layers_has_no_slots() -> None:
    assert slots_of(make_slot_plan({})) == []


@pytest.mark.parametrize("layout", Layout)
def test_slots_need_whole_pages_side_by_side_in_a_block(layout: Layout) -> None:
    layers = {"full": make_full(), "window": make_window()}
    if layout in (Layout.BLHNC, Layout.BLNHC):
        assert len(slots_of(make_slot_plan(layers, layout=layout))) == 1
        return
    with pytest.raises(LayoutCannotExpress, match=f"layout {layout.value} cannot express pages") as refusal:
        make_slot_plan(layers, layout=layout)
    assert refusal.value.figures == {"layout": layout.value, "possible_layouts": ["BLHNC", "BLNHC"]}
