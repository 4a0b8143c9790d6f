"""Windowed layers allocated like full attention: with hybrid groups off, and where pages do not unify."""

from typing import Any

import pytest

from blockyard.planning.errors import CannotUnifyHybrid, IncompatiblePageSizes
from blockyard.planning.groups import Layers
from blockyard.planning.layers import FullAttention, Layer, SlidingWindow
from blockyard.planning.layouts import Layout
from blockyard.planning.placement import Tensor
from blockyard.planning.planner import Plan
from planning.make_layers import (
    PAGE_BYTES,
    layer_of,
    make_chunked,
    make_full,
    make_hidden,
    make_indexer,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    names_of,
    tensors_of,
)

OFF_WARNING = (
    "hybrid groups are off: windowed layers keep blocks for all tokens, as full attention does; "
    "what they compute is unchanged"
)


def make_unified_plan(layers: Layers, **asked: Any) -> Plan:
    return make_plan(layers, hybrid_groups=False, **asked)


# Hybrid groups off


def test_a_window_beside_full_attention_becomes_full_attention_with_a_window() -> None:
    layers = {"layer.1": make_full(), "layer.2": make_window()}
    plan = make_unified_plan(layers, available_bytes=PAGE_BYTES * 2 * 32)
    assert plan.num_blocks == 32
    assert names_of(plan) == [["layer.1", "layer.2"]]
    assert plan.grouping.groups[0].form == make_full(sliding_window=1)
    assert tensors_of(plan) == [
        Tensor(
            size=PAGE_BYTES * 32 * 2,
            layers=["layer.1", "layer.2"],
            layer_stride=PAGE_BYTES * 32,
            block_stride=PAGE_BYTES,
            offset=0,
        )
    ]


def test_promotion_is_told() -> None:
    assert make_unified_plan({"full": make_full(), "window": make_window()}).grouping.warnings == [
        OFF_WARNING
    ]


@pytest.mark.parametrize("layer", [make_full(), make_window(), make_chunked(), make_mamba()])
def test_layers_of_one_kind_are_left_alone(layer: Layer) -> None:
    plan = make_unified_plan({"first": layer, "second": layer})
    assert layer_of(plan, "second") == layer
    assert plan.grouping.warnings == []


def test_a_promoted_layer_takes_the_block_size_of_full_attention_and_its_padding_grows() -> None:
    # 64 tokens of content are 64 KiB, more than the 32 KiB that 16 tokens were padded to.
    window = make_window(page_size_padded=2 * PAGE_BYTES, sliding_window=1024)
    plan = make_unified_plan({"full": make_full(block_size=64), "window": window})
    assert layer_of(plan, "full") == make_full(block_size=64)
    assert layer_of(plan, "window") == make_full(
        block_size=64, page_size_padded=4 * PAGE_BYTES, sliding_window=1024
    )
    assert layer_of(plan, "window").page_bytes == 64 * 1024


def test_layers_that_every_rank_keeps_whole_are_promoted_by_themselves() -> None:
    full = make_full(block_size=64)
    window = make_window(page_size_padded=2 * PAGE_BYTES, sliding_window=1024)
    layers = {
        "full": full,
        "window": window,
        "draft.full": full.but(dcp_sharded=False),
        "draft.window": window.but(dcp_sharded=False),
    }
    plan = make_unified_plan(layers, layout=Layout.BLNHC)
    promoted = make_full(block_size=64, page_size_padded=4 * PAGE_BYTES, sliding_window=1024)
    assert layer_of(plan, "window") == promoted
    assert layer_of(plan, "draft.window") == promoted.but(dcp_sharded=False)


@pytest.mark.parametrize("has_window", [False, True])
def test_chunks_and_windows_are_promoted_with_their_padding(has_window: bool) -> None:
    padded: dict[str, Any] = {"page_size_padded": 2 * PAGE_BYTES}
    layers: dict[str, Layer] = {
        "full": make_full(),
        "chunked": make_chunked(attention_chunk_size=512, **padded),
    }
    if has_window:
        layers["window"] = make_window(sliding_window=1024, **padded)
    plan = make_unified_plan(layers)
    assert names_of(plan) == [list(layers)]
    assert layer_of(plan, "full") == make_full()
    assert layer_of(plan, "chunked") == make_full(attention_chunk_size=512, **padded)
    if has_window:
        assert layer_of(plan, "window") == make_full(sliding_window=1024, **padded)


def test_a_latent_window_becomes_a_latent_layer() -> None:
    plan = make_unified_plan({"mla": make_mla(), "window": make_window_mla(head_size=512)})
    assert names_of(plan) == [["mla", "window"]]
    assert layer_of(plan, "window") == make_mla(head_size=512, sliding_window=128)


def test_a_promoted_layer_retains_no_tokens_behind_its_window() -> None:
    plan = make_unified_plan({"full": make_full(), "window": make_window(extra_retained_tokens=3)})
    assert layer_of(plan, "window") == make_full(sliding_window=1)


def test_layers_of_several_block_sizes_keep_them() -> None:
    layers = {"full.16": make_full(), "full.32": make_full(block_size=32), "window": make_window()}
    with pytest.raises(CannotUnifyHybrid):
        make_unified_plan(layers)


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        ({"window": make_window(sliding_window=1024), "chunked": make_chunked()}, None),
        ({"full": make_full(), "state": make_mamba()}, ["full_attention", "mamba"]),
    ],
    ids=["no full attention", "a state"],
)
def test_kinds_that_cannot_be_allocated_alike_are_refused(layers: Layers, kinds: list[str] | None) -> None:
    with pytest.raises(CannotUnifyHybrid, match="leave hybrid_groups on") as refusal:
        make_unified_plan(layers)
    want = kinds or ["chunked_local_attention", "sliding_window"]
    assert refusal.value.figures == {"kinds": want}


# Pages that cannot be unified


def make_latent_model_with_draft(**window: Any) -> dict[str, Layer]:
    return {
        "target.mla": make_mla(block_size=64),
        "target.indexer": make_indexer(block_size=64),
        "draft": make_window(**window),
    }


def test_a_window_beside_latent_pages_that_cannot_be_padded_joins_their_table() -> None:
    plan = make_plan(make_latent_model_with_draft())
    assert names_of(plan) == [["target.mla", "target.indexer", "draft"]]
    draft = layer_of(plan, "draft")
    assert isinstance(draft, FullAttention)
    assert not isinstance(draft, SlidingWindow)
    assert draft == make_full(block_size=64, sliding_window=1)


def test_the_fallback_changes_no_layer_of_the_request() -> None:
    layers = make_latent_model_with_draft()
    make_plan(layers)
    assert layers == make_latent_model_with_draft()


def test_the_fallback_is_told() -> None:
    (warning,) = make_plan(make_latent_model_with_draft()).grouping.warnings
    assert warning.startswith(
        "pages cannot be brought to one size: sliding-window layers keep blocks for all"
    )


def test_where_a_block_keeps_pages_of_several_sizes_there_is_no_fallback() -> None:
    plan = make_plan(make_latent_model_with_draft(), layout=Layout.BLNHC)
    assert layer_of(plan, "draft") == make_window()
    assert plan.grouping.warnings == []


@pytest.mark.parametrize(
    "more",
    [
        {"hidden": make_hidden(block_size=64)},
        {"latent window": make_window_mla(block_size=64)},
        {"chunked": make_chunked()},
        {"state": make_mamba()},
    ],
    ids=lambda more: next(iter(more)),
)
def test_layers_that_cannot_be_full_attention_allow_no_fallback(more: dict[str, Layer]) -> None:
    with pytest.raises(IncompatiblePageSizes):
        make_plan(make_latent_model_with_draft() | more)


def test_layers_of_several_block_sizes_allow_no_fallback() -> None:
    layers = {"mla": make_mla(), "indexer": make_indexer(block_size=64), "draft": make_window()}
    with pytest.raises(IncompatiblePageSizes) as refusal:
        make_plan(layers)
    assert refusal.value.figures["page_size_bytes"]["draft"] == PAGE_BYTES
