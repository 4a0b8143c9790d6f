"""Hidden-state layers beside groups of one page size."""

from typing import Any

import pytest

from blockyard.planning.grouping.hidden_states import largest_divisor
from blockyard.planning.layers import HiddenState, Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan
from blockyard.planning.request import Speculative
from planning.make_layers import (
    bytes_per_block,
    layer_of,
    make_full,
    make_hidden,
    make_mamba,
    make_plan,
    make_window,
    names_of,
)

LARGE_PAGE = 544 * (512 + 512) * 2
"""1,114,112 bytes: 544 tokens of one head, 512 elements a key and a value, 2 bytes each."""


def make_recurrent_model(hidden: HiddenState) -> dict[str, Layer]:
    return {
        "full": make_full(block_size=544, num_kv_heads=1, head_size=512, dtype="bfloat16"),
        "state": make_mamba(
            block_size=544, shapes=((557_056,),), dtypes=("bfloat16",), mamba_cache_mode="align"
        ),
        "hidden": hidden,
    }


def make_recurrent_plan(**asked: Any) -> Plan:
    layers = make_recurrent_model(make_hidden(block_size=544))
    return make_plan(layers, mamba_cache_mode="align", **asked)


def test_a_hidden_block_is_cut_to_what_fits_the_common_page() -> None:
    # 3 * 1,024 * 2 = 6,144 bytes a token: 181 fit, and 136 is the largest divisor of 544 up to that.
    plan = make_recurrent_plan()
    assert names_of(plan) == [["full"], ["state"], ["hidden"]]
    hidden = layer_of(plan, "hidden")
    assert hidden.block_size == 136
    assert hidden.page_bytes == LARGE_PAGE == bytes_per_block(plan)


def test_hits_end_at_hidden_blocks_and_scheduling_steps_by_the_others() -> None:
    sizes = make_recurrent_plan().block_sizes
    assert (sizes.scheduler, sizes.hash) == (544, 136)


def test_the_other_layers_keep_their_blocks_where_a_token_fits() -> None:
    plan = make_recurrent_plan()
    assert {name: layer_of(plan, name).block_size for name in ("full", "state")} == {
        "full": 544,
        "state": 544,
    }


def make_sharded_plan(**more: Layer) -> Plan:
    """KV heads spread over ranks: a page of 16 * 2 * 128 * 2 = 8,192 bytes; hidden states are whole."""
    full = make_full(dtype="bfloat16")
    layers = {"full.0": full, "full.1": full, "window.0": make_window(dtype="bfloat16"), **more}
    return make_plan(layers)


@pytest.mark.parametrize(
    ("head_size", "scale"),
    [
        (512, 1),  # 6 * 512 * 2 = 6,144 bytes a token fit a page
        (1024, 2),  # 12,288 bytes take two of them
        (2048, 3),  # 24,576 bytes three
    ],
)
def test_all_blocks_grow_until_a_tokens_hidden_states_fit_a_page(head_size: int, scale: int) -> None:
    plan = make_sharded_plan(hidden=make_hidden(num_kv_heads=6, head_size=head_size))
    assert names_of(plan)[-1] == ["hidden"]
    assert layer_of(plan, "full.0").block_size == layer_of(plan, "window.0").block_size == 16 * scale
    assert layer_of(plan, "hidden").block_size == 1
    assert {layer_of(plan, name).page_bytes for name in ("full.0", "window.0", "hidden")} == {8192 * scale}


def test_two_full_layers_beside_hidden_states_grow_where_they_need_a_table_of_their_own() -> None:
    full = make_full(head_size=32, dtype="bfloat16", dcp_sharded=False)
    plan = make_plan({"full.0": full, "full.1": full, "hidden": make_hidden(num_kv_heads=6, head_size=512)})
    # A page of 4,096 bytes, and 6,144 a token.
    assert names_of(plan) == [["full.0", "full.1"], ["hidden"]]
    assert layer_of(plan, "full.0") == full.but(block_size=32)
    assert layer_of(plan, "hidden").page_bytes == 8192


def test_a_state_grows_by_padding() -> None:
    state = make_mamba(shapes=((4096,),), dtypes=("bfloat16",))
    plan = make_sharded_plan(state=state, hidden=make_hidden(num_kv_heads=6))
    assert layer_of(plan, "state") == state.but(block_size=32, page_size_padded=16_384)


def test_a_padded_page_grows_with_its_padding() -> None:
    full = make_full(head_size=32, dtype="bfloat16", page_size_padded=5000)
    plan = make_plan({"full": full, "window": make_window(**padded_window()), "hidden": make_hidden()})
    assert layer_of(plan, "full") == full.but(block_size=32, page_size_padded=10_000)


def padded_window() -> dict[str, Any]:
    return {"head_size": 32, "dtype": "bfloat16", "page_size_padded": 5000}


def test_hidden_layers_of_several_sizes_are_a_group_each_of_one_page_size() -> None:
    plan = make_sharded_plan(
        hidden=make_hidden(num_kv_heads=1, head_size=256), wide=make_hidden(num_kv_heads=1, head_size=1024)
    )
    assert names_of(plan)[-2:] == [["hidden"], ["wide"]]
    assert layer_of(plan, "hidden").block_size == 16  # 8,192 / 512
    assert layer_of(plan, "wide").block_size == 4  # 8,192 / 2,048


def test_hidden_states_beside_full_attention_alone_share_its_table() -> None:
    full = make_full(dtype="bfloat16")
    hidden = make_hidden(num_kv_heads=6, head_size=512)
    plan = make_plan({"full.0": full, "full.1": full, "hidden": hidden})
    assert names_of(plan) == [["full.0", "full.1", "hidden"]]
    assert bytes_per_block(plan) == 2 * full.page_bytes + 16 * 6144


def test_hidden_states_alone_are_planned_as_they_are() -> None:
    plan = make_plan({"hidden.0": make_hidden(), "hidden.1": make_hidden(block_size=32)}, layout=Layout.BLNHC)
    assert names_of(plan) == [["hidden.0"], ["hidden.1"]]


def test_the_largest_divisor_of_a_large_prime_is_found_at_once() -> None:
    assert largest_divisor(10**8 + 7, at_most=10**8) == 1
    assert largest_divisor(544, at_most=181) == 136
    assert largest_divisor(12, at_most=12) == 12


def test_a_drafters_group_is_told_though_a_hidden_state_is_registered_last() -> None:
    layers = {
        "target": make_full(),
        "state": make_mamba(),
        "mtp": make_full(num_kv_heads=4),
        "hidden": make_hidden(),
    }
    for layout in (Layout.LBNHC, Layout.BLHNC):
        plan = make_plan(layers, layout=layout, speculative=Speculative(method="mtp"))
        (draft,) = [group for group in plan.grouping.groups if group.is_draft]
        assert "mtp" in draft.layers
