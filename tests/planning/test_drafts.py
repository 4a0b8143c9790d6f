"""Which groups are a drafter's: by a mark, or by the place of the last layer."""

import pytest

from blockyard.planning.grouping.drafts import flag_drafts
from blockyard.planning.groups import Group, Layers
from blockyard.planning.layers import FullAttention, Layer, Mamba
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.planner import Plan
from blockyard.planning.request import Speculative
from planning.make_layers import (
    groups_of,
    layer_of,
    make_full,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    names_of,
)

MARKED = Speculative(method="dspark")
"""A drafter whose layers are told by their mark alone."""


def make_marked_model(*, has_draft: bool = True, target_format: str | None = "fp8_e4m3") -> dict[str, Layer]:
    """Latent layers and states, and a marked latent layer of the drafter's."""
    layers: dict[str, Layer] = {}
    for number in range(2):
        layers[f"target.mla.{number}"] = make_mla(block_size=64, cache_dtype_str=target_format)
        layers[f"target.state.{number}"] = make_mamba(block_size=64, mamba_cache_mode="align")
    if has_draft:
        layers["draft.mla"] = make_mla(block_size=64, non_causal_multi_token_decode=True)
    return layers


def make_decoder_model(*, has_draft: bool = True) -> dict[str, Layer]:
    """Twice three states and a full layer; the drafter's is like the model's and comes last."""
    layers: dict[str, Layer] = {
        f"layers.{number}": make_full() if number % 4 == 3 else make_mamba(mamba_cache_mode="align")
        for number in range(8)
    }
    return layers | {"mtp.layers.0": make_full()} if has_draft else layers


def make_windowed_model(model_version: str | None) -> dict[str, Layer]:
    """Latent layers, a window, and the drafter's longer one, last and with no mark."""
    return {
        "layers.0": make_mla(),
        "layers.1": make_mla(),
        "layers.2": make_window_mla(head_size=1024, model_version=model_version),
        "layers.3": make_window_mla(head_size=1024, sliding_window=256, model_version=model_version),
    }


def make_draft_plan(layers: Layers, speculative: Speculative | None, layout: Layout = Layout.BLNHC) -> Plan:
    return make_plan(layers, speculative=speculative, layout=layout, mamba_cache_mode="align")


def drafts_of(plan: Plan) -> list[list[str]]:
    return [list(group.layers) for group in groups_of(plan) if group.is_draft]


def warns_of_unknown_draft(plan: Plan) -> bool:
    return any("no group can be told to be the drafter's" in warning for warning in plan.grouping.warnings)


# Marked layers


def test_a_marked_layer_tells_its_group() -> None:
    plan = make_draft_plan(make_marked_model(), MARKED)
    (names,) = drafts_of(plan)
    assert "draft.mla" in names
    assert not warns_of_unknown_draft(plan)


def test_a_group_of_states_is_never_a_drafters_whatever_the_draft_shares() -> None:
    plan = make_draft_plan(make_marked_model(target_format=None), MARKED)
    for group in groups_of(plan):
        assert group.is_draft is ("draft.mla" in group.layers)
        assert not (group.is_draft and isinstance(group.form, Mamba))


def test_a_mark_means_nothing_unless_tokens_are_drafted() -> None:
    assert drafts_of(make_draft_plan(make_marked_model(), None)) == []


@pytest.mark.parametrize("method", ["ngram", "suffix", "medusa"])
def test_a_mark_means_nothing_to_a_method_without_layers_of_its_own(method: str) -> None:
    plan = make_draft_plan(make_marked_model(), Speculative(method=method))
    assert drafts_of(plan) == []
    assert not warns_of_unknown_draft(plan)


def test_a_draft_that_cannot_be_told_beside_states_is_warned_of() -> None:
    plan = make_draft_plan(make_marked_model(has_draft=False), MARKED)
    assert drafts_of(plan) == []
    (warning,) = plan.grouping.warnings
    assert warning.startswith("speculative method 'dspark': no group can be told to be the drafter's")


def test_a_draft_that_cannot_be_told_without_states_is_not_warned_of() -> None:
    plan = make_draft_plan({"target.0": make_mla(block_size=64), "target.1": make_mla(block_size=64)}, MARKED)
    assert drafts_of(plan) == []
    assert plan.grouping.warnings == []


def test_a_draft_that_is_told_without_states_is_not_warned_of() -> None:
    layers = {
        "mla": make_mla(),
        "window": make_window(),
        "draft": make_mla(non_causal_multi_token_decode=True),
    }
    plan = make_draft_plan(layers, MARKED)
    assert drafts_of(plan) == [["mla", "draft"]]
    assert plan.grouping.warnings == []


# Layers told by their place


@pytest.mark.parametrize(
    "speculative",
    [
        Speculative(method="mtp", model_type="deepseek_v4"),
        Speculative(method="dspark", model_type="deepseek_v4"),
        Speculative(method="dspark", model_type="deepseek_v41"),
        Speculative(method="mtp", model_type="other"),
        Speculative(method="mtp"),
    ],
    ids=lambda speculative: f"{speculative.method}-{speculative.model_type}",
)
@pytest.mark.parametrize("model_version", [None, "deepseek_v4"])
def test_the_group_of_the_last_layer_is_the_drafters(
    speculative: Speculative, model_version: str | None
) -> None:
    plan = make_draft_plan(make_windowed_model(model_version), speculative)
    assert drafts_of(plan) == [["layers.3"]]


@pytest.mark.parametrize("method", ["eagle", "eagle3", "dflash", "dspark"])
def test_other_drafters_are_not_told_by_their_place(method: str) -> None:
    plan = make_draft_plan(make_windowed_model(None), Speculative(method=method, model_type="other"))
    assert drafts_of(plan) == []


@pytest.mark.parametrize("layout", [Layout.LBNHC, Layout.BLNHC])
def test_a_drafter_with_a_decoder_layer_of_the_models_is_told_beside_states(layout: Layout) -> None:
    plan = make_draft_plan(make_decoder_model(), Speculative(method="mtp", model_type="qwen3_5"), layout)
    (names,) = drafts_of(plan)
    assert "mtp.layers.0" in names
    assert not any(isinstance(layer_of(plan, name), Mamba) for name in names)
    assert not warns_of_unknown_draft(plan)


@pytest.mark.parametrize("method", ["eagle", "eagle3", "dspark"])
def test_another_drafter_with_a_decoder_layer_of_the_models_is_warned_of(method: str) -> None:
    plan = make_draft_plan(make_decoder_model(), Speculative(method=method, model_type="qwen3_5"))
    assert drafts_of(plan) == []
    assert warns_of_unknown_draft(plan)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_place_tells_nothing_unless_every_layer_is_in_just_one_group(is_lost: bool) -> None:
    layers = make_decoder_model()
    speculative = Speculative(method="mtp")
    states = {name: layer for name, layer in layers.items() if isinstance(layer, Mamba)}
    full = {name: layer for name, layer in layers.items() if isinstance(layer, FullAttention)}
    groups = flag_drafts([Group.of(states), Group.of(full)], layers, speculative, [])
    assert [group.is_draft for group in groups] == [False, True]
    if is_lost:
        states.pop("layers.0")
    else:
        full["layers.0"] = make_full()
    warnings: list[str] = []
    groups = flag_drafts([Group.of(states), Group.of(full)], layers, speculative, warnings)
    assert not any(group.is_draft for group in groups)
    assert len(warnings) == 1


# On ranks


def test_a_group_is_no_drafters_on_a_stage_without_its_layers() -> None:
    draft = make_mla(block_size=32, non_causal_multi_token_decode=True)
    plan = make_plan(
        {"target": make_mla(), "window": make_window()},
        {"draft": draft},
        speculative=MARKED,
        layout=Layout.BLNHC,
        parallel=Parallel(pipeline=2),
    )
    assert names_of(plan, 0) == [["target"], ["window"], []]
    assert [group.is_draft for group in groups_of(plan, 0)] == [False, False, False]
    assert [group.is_draft for group in groups_of(plan, 1)] == [False, False, True]


def test_windows_retain_what_a_drafter_of_several_modules_computes_again() -> None:
    speculative = Speculative(method="mtp", num_prefill_lookahead_tokens=3)
    layers = {"full": make_full(), "window": make_window(), "latent": make_window_mla()}
    plan = make_draft_plan(layers, speculative)
    assert layer_of(plan, "window") == make_window(extra_retained_tokens=2)
    assert layer_of(plan, "latent") == make_window_mla(extra_retained_tokens=2)
    assert layer_of(plan, "full") == make_full()


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_windows_retain_nothing_for_a_drafter_of_one_module(num_tokens: int) -> None:
    speculative = Speculative(method="mtp", num_prefill_lookahead_tokens=num_tokens)
    plan = make_draft_plan({"full": make_full(), "window": make_window()}, speculative)
    assert layer_of(plan, "window") == make_window()


# A draft that every decode-context rank keeps whole


@pytest.mark.parametrize(
    ("draft", "hybrid_groups", "num_draft_blocks"),
    [
        ("full", True, 64),
        ("full", False, 64),
        # 1,024 tokens in 64 blocks, and one as a window need not begin with a block.
        ("window", True, 65),
        # By itself it is of one kind, and is not promoted.
        ("window", False, 65),
    ],
)
@pytest.mark.parametrize("prefill_context", [1, 4])
def test_a_draft_kept_whole_has_a_table_of_its_own_and_blocks_for_all_positions(
    draft: str, hybrid_groups: bool, num_draft_blocks: int, prefill_context: int
) -> None:
    sizes = {"num_kv_heads": 8, "dtype": "bfloat16", "dcp_sharded": False}
    layer: Layer = make_full(**sizes) if draft == "full" else make_window(**sizes, sliding_window=256)
    plan = make_plan(
        {"target": make_mla(), "draft": layer},
        layout=Layout.BLHNC,
        max_model_len=1024,
        hybrid_groups=hybrid_groups,
        parallel=Parallel(decode_context=4, prefill_context=prefill_context),
        available_bytes=16 * 2**20,
    )
    assert names_of(plan) == [["target"], ["draft"]]
    workload = plan.request.workload()
    assert [group.max_blocks(workload) for group in groups_of(plan)] == [16, num_draft_blocks]
    assert [group.table_block_size(4) for group in groups_of(plan)] == [64, 16]
    assert plan.block_sizes.scheduler == 64
    assert plan.block_sizes.hash == 16
    assert plan.capacity is not None
    assert plan.capacity.max_concurrency == plan.num_blocks / (16 + num_draft_blocks)
