"""Which layers are alike: those that one layer describes, and those that one block table serves."""

from collections.abc import Sequence

import pytest

from blockyard.planning.groups import can_merge, can_share_table, merge
from blockyard.planning.layers import KpoolTail, Layer, MlaAttention
from planning.make_layers import (
    PAGE_BYTES,
    make_chunked,
    make_full,
    make_indexer,
    make_mamba,
    make_mla,
    make_plan,
    make_window,
    make_window_mla,
    names_of,
)

# Layers that one layer describes


def test_equal_layers_merge_into_one_like_them() -> None:
    assert merge([make_full(num_kv_heads=32), make_full(num_kv_heads=32)]) == make_full(num_kv_heads=32)


@pytest.mark.parametrize(
    "windows", [(None, None), (1, 1), (1, None), (None, 1)], ids=["none", "both", "first", "second"]
)
def test_full_layers_merge_where_only_one_of_them_has_a_window(windows: tuple[int | None, ...]) -> None:
    merged = merge([make_full(sliding_window=window) for window in windows])
    assert merged == make_full(sliding_window=1 if 1 in windows else None)


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param([make_full(num_kv_heads=32), make_full(num_kv_heads=16)], id="heads"),
        pytest.param([make_full(), make_full(), make_window()], id="full and window"),
        pytest.param([make_window(), make_full()], id="window and full"),
        pytest.param([make_full(), make_full(sliding_window=1), make_full(sliding_window=2)], id="windows"),
        pytest.param([make_full(sliding_window=8), make_full(attention_chunk_size=8)], id="window and chunk"),
        pytest.param([make_window(sliding_window=1), make_window(sliding_window=2)], id="windows that drop"),
        pytest.param([make_full(), make_full(dcp_sharded=False)], id="sharded and whole"),
        pytest.param([make_mla(), make_mla(dcp_sharded=False)], id="latent, sharded and whole"),
        pytest.param([make_mla(cache_dtype_str="fp8_ds_mla"), make_mla()], id="formats"),
        pytest.param([make_mla(model_version="b"), make_mla(model_version="a")], id="versions"),
        pytest.param([make_mla(non_causal_multi_token_decode=True), make_mla()], id="draft and model"),
        pytest.param([make_full(), make_mla()], id="full and latent"),
        pytest.param([make_mla(cache_dtype_str="fp8_ds_mla"), make_full()], id="latent and full"),
        pytest.param([make_mamba(), make_mamba(num_speculative_blocks=0)], id="states of drafts"),
    ],
)
def test_layers_that_differ_do_not_merge(layers: Sequence[Layer]) -> None:
    assert not can_merge(layers)


def test_full_latent_like_layers_of_equal_sizes_do_not_merge() -> None:
    latent = make_mla()
    full = make_full(num_kv_heads=1, head_size=576, head_size_v=0, max_tp_shards=1)
    assert full.stores_alike(latent)
    assert not can_merge([full, latent])
    assert not can_merge([latent, full])


@pytest.mark.parametrize("layer", [make_mla(), make_mla(cache_dtype_str="fp8_ds_mla")])
def test_latent_layers_of_one_format_merge(layer: MlaAttention) -> None:
    assert merge([layer, layer]) == layer


def test_latent_layers_of_both_roles_merge_where_their_pages_are_alike() -> None:
    assert can_merge([make_mla(cache_role="sparse"), make_mla(cache_role="indexer")])


def test_windows_of_one_length_merge() -> None:
    assert can_merge([make_window(), make_window()])


# Layers that one block table serves, whatever their pages


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param((make_full(), make_full(head_size=128)), id="full"),
        pytest.param((make_window(), make_window(head_size=128)), id="windows of one length"),
        pytest.param((make_mla(), make_indexer()), id="latent and indexer"),
        pytest.param((make_full(), make_mla()), id="full and latent"),
        pytest.param((make_mla(), make_mla(cache_dtype_str="fp8")), id="formats"),
        pytest.param((make_window_mla(), make_window_mla(head_size=1024)), id="latent windows"),
        pytest.param((make_chunked(), make_chunked(num_kv_heads=4)), id="chunks"),
    ],
)
def test_layers_that_need_the_same_slots_share_a_table(layers: Sequence[Layer]) -> None:
    named = {f"layer.{number}": layer for number, layer in enumerate(layers)}
    assert can_share_table(named)
    assert names_of(make_plan(named)) == [["layer.0", "layer.1"]]


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param((make_full(), make_window()), id="full and window"),
        pytest.param((make_window(), make_full()), id="window and full"),
        pytest.param((make_window(sliding_window=8), make_window(sliding_window=9)), id="windows"),
        pytest.param((make_full(), make_full(block_size=32)), id="block sizes"),
        pytest.param((make_full(), make_full(dcp_sharded=False)), id="sharded and whole"),
        pytest.param((make_mla(), make_window_mla()), id="latent and its window"),
        pytest.param((make_window_mla(sliding_window=1), make_window()), id="latent window and window"),
        pytest.param((make_chunked(), make_chunked(attention_chunk_size=8)), id="chunks"),
        pytest.param((make_mamba(), make_mamba(num_speculative_blocks=0)), id="states of drafts"),
        pytest.param((make_mamba(), make_mamba(page_size_padded=PAGE_BYTES + 4)), id="states"),
        pytest.param((make_full(), make_mamba()), id="full and state"),
    ],
)
def test_layers_that_need_other_slots_have_other_tables(layers: Sequence[Layer]) -> None:
    assert not can_share_table({f"layer.{number}": layer for number, layer in enumerate(layers)})


@pytest.mark.parametrize("tail_first", [False, True])
def test_what_is_written_in_a_circle_does_not_share_the_table_of_a_window(tail_first: bool) -> None:
    tail = KpoolTail(block_size=4, num_kv_heads=2, head_size=64, dtype="float32", sliding_window=4)
    window = make_window(block_size=4, sliding_window=4)
    layers: list[Layer] = [tail, window] if tail_first else [window, tail]
    assert not can_share_table({f"layer.{number}": layer for number, layer in enumerate(layers)})


def test_windows_that_retain_more_need_more_slots() -> None:
    assert not make_window().can_share_table(make_window(extra_retained_tokens=1000))
