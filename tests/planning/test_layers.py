"""What one layer asks of a block: its page, the blocks of a request, and which layers are alike."""

from typing import Any

import pytest

from blockyard.core.errors import InvalidRequest
from blockyard.planning.groups import merge
from blockyard.planning.layers import (
    LAYER_KINDS,
    AttentionLayer,
    CircularBuffer,
    CrossAttention,
    EncoderOnlyAttention,
    KpoolTail,
    KvQuantMode,
    Layer,
    Mamba,
    SinkFullAttention,
    SlidingWindow,
    Workload,
)
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from planning.make_layers import (
    PAGE_BYTES,
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
)

SMALL: dict[str, Any] = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": "float32"}

ONE_OF_EACH_KIND: dict[str, Layer] = {
    "full_attention": make_full(),
    "mla_attention": make_mla(),
    "sliding_window": make_window(),
    "sliding_window_mla": make_window_mla(),
    "chunked_local_attention": make_chunked(),
    "mamba": make_mamba(),
    "hidden_state": make_hidden(),
    "sink_full_attention": SinkFullAttention(**SMALL, sink_len=4),
    "circular_buffer": CircularBuffer(**SMALL),
    "kpool_tail": KpoolTail(**SMALL, sliding_window=4),
    "cross_attention": CrossAttention(**SMALL),
    "encoder_only_attention": EncoderOnlyAttention(**SMALL),
}


def refused_field(refusal: pytest.ExceptionInfo[InvalidRequest]) -> str:
    """The field that a refusal names."""
    (error,) = refusal.value.figures["errors"]
    return str(error["field"])


# Page sizes


def test_a_page_holds_a_key_and_a_value_for_every_token_and_head() -> None:
    assert make_full().page_bytes == 16 * 2 * (64 + 64) * 4 == PAGE_BYTES


def test_a_value_can_be_smaller_than_a_key() -> None:
    assert make_full(head_size_v=32).page_bytes == 16 * 2 * (64 + 32) * 4


def test_a_value_is_as_large_as_a_key_unless_given() -> None:
    assert make_full(head_size=96).head_size_v == 96


def test_a_latent_layer_keeps_no_value() -> None:
    assert make_mla().page_bytes == 16 * 576 * 4


def test_a_state_can_stand_for_several_tokens() -> None:
    # 1,024 tokens in states of 16: 64 states of 132 bytes.
    assert make_indexer(block_size=1024, tokens_per_state=16).page_bytes == 64 * 132


def test_states_that_stand_for_several_tokens_have_to_fill_a_block() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        make_indexer(block_size=24, tokens_per_state=16)
    assert refused_field(refusal) == "tokens_per_state"


def test_a_page_can_keep_apart_more_heads_than_there_are() -> None:
    assert make_full(num_head_slots=4).page_bytes == 2 * PAGE_BYTES


def test_a_packed_state_has_the_bytes_given() -> None:
    assert make_full(state_content_bytes=100).page_bytes == 16 * 2 * 100


def test_a_padded_page_takes_up_what_is_given() -> None:
    layer = make_full(dtype="uint8", kv_quant_mode=KvQuantMode.FP8_PER_TOKEN_HEAD, page_size_padded=65_536)
    assert layer.page_bytes == 65_536


def test_padding_does_not_change_the_content() -> None:
    assert make_full(page_size_padded=65_536).content_bytes == PAGE_BYTES


def test_a_page_cannot_be_padded_to_less_than_its_content() -> None:
    with pytest.raises(InvalidRequest, match="16384 bytes") as refusal:
        make_full(page_size_padded=PAGE_BYTES - 1)
    assert refused_field(refusal) == "page_size_padded"


def test_an_unknown_element_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'float7' is none of float64") as refusal:
        make_full(dtype="float7")
    assert refused_field(refusal) == "dtype"


def test_a_recurrent_page_is_its_state_whatever_the_tokens() -> None:
    assert make_mamba().page_bytes == make_mamba(block_size=64).page_bytes == (2 * 512 + 3 * 32 * 32) * 4


def test_the_parts_of_a_state_can_have_types_of_their_own() -> None:
    state = make_mamba(shapes=((3, 8), (4, 4)), dtypes=("bfloat16", "float32"))
    assert state.page_bytes == 3 * 8 * 2 + 4 * 4 * 4


@pytest.mark.parametrize(
    ("field", "state"),
    [
        ("shapes", {"shapes": (), "dtypes": ()}),
        ("shapes", {"shapes": ((4, 0),), "dtypes": ("float32",)}),
        ("dtypes", {"shapes": ((4, 4),), "dtypes": ("float32", "float32")}),
        ("dtypes", {"shapes": ((4, 4),), "dtypes": ("float7",)}),
    ],
)
def test_a_state_needs_shapes_and_a_known_type_for_each(field: str, state: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        make_mamba(**state)
    assert refused_field(refusal) == field


# Quantisation


@pytest.mark.parametrize("mode", [KvQuantMode.FP8_PER_TOKEN_HEAD, KvQuantMode.INT8_PER_TOKEN_HEAD])
def test_a_scale_for_each_token_and_head_is_kept_beside_key_and_value(mode: KvQuantMode) -> None:
    dense = make_full(dtype="uint8")
    scales_bytes = 2 * 16 * 2 * 4  # a key's and a value's, 16 tokens, 2 heads, 4 bytes
    assert make_full(dtype="uint8", kv_quant_mode=mode).page_bytes == dense.page_bytes + scales_bytes


def test_one_scale_a_tensor_takes_nothing_of_a_page() -> None:
    assert make_full(dtype="uint8", kv_quant_mode=KvQuantMode.FP8_PER_TENSOR).page_bytes == 16 * 2 * 128


def test_four_bits_are_half_a_byte_and_a_scale() -> None:
    layer = make_full(dtype="uint8", kv_quant_mode=KvQuantMode.INT4_PER_TOKEN_HEAD)
    assert layer.page_bytes == 16 * 2 * 2 * (64 // 2 + 4)


def test_nvfp4_keeps_a_byte_of_scale_for_sixteen_elements() -> None:
    layer = make_full(dtype="uint8", kv_quant_mode=KvQuantMode.NVFP4)
    assert layer.page_bytes == 16 * 2 * 2 * (64 // 2 + 64 // 16)


def test_a_value_that_is_not_there_has_no_scale() -> None:
    layer = make_mla(head_size=64, dtype="uint8", kv_quant_mode=KvQuantMode.FP8_PER_TOKEN_HEAD)
    assert layer.page_bytes == 16 * (64 + 4)


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        (KvQuantMode.INT4_PER_TOKEN_HEAD, {"head_size": 63}),
        (KvQuantMode.NVFP4, {"head_size": 72}),
        (KvQuantMode.NVFP4, {"head_size": 64, "head_size_v": 8}),
    ],
)
def test_elements_that_do_not_pack_evenly_are_refused(mode: KvQuantMode, sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="packs multiples of") as refusal:
        make_full(dtype="uint8", kv_quant_mode=mode, **sizes)
    assert refused_field(refusal) == "head_size"


# Formats and alignment of latent layers


@pytest.mark.parametrize("make_latent", [make_mla, make_window_mla])
def test_a_packed_format_tells_the_bytes_of_a_state(make_latent: Any) -> None:
    assert make_latent(cache_dtype_str="fp8_ds_mla", dtype="uint8").page_bytes == 16 * 656


def test_bytes_given_win_over_those_of_a_format() -> None:
    assert make_mla(cache_dtype_str="fp8_ds_mla", state_content_bytes=700).page_bytes == 16 * 700


def test_a_page_is_padded_to_its_alignment() -> None:
    # 16 * 656 = 10,496 bytes are 18.2 times 576.
    layer = make_mla(cache_dtype_str="fp8_ds_mla", dtype="uint8", alignment=576)
    assert layer.page_bytes == 19 * 576


def test_a_page_that_is_aligned_is_not_padded() -> None:
    assert make_mla(alignment=576).page_size_padded is None


def test_padding_given_wins_over_alignment() -> None:
    assert make_mla(head_size=100, alignment=512, page_size_padded=7000).page_bytes == 7000


# Blocks that a request holds, at most at a time


def test_full_attention_holds_blocks_for_all_tokens() -> None:
    assert [make_full().max_blocks(Workload(max_model_len=tokens)) for tokens in (16, 17, 1024)] == [1, 2, 64]


@pytest.mark.parametrize(
    ("layer", "decode_context", "num_blocks"),
    [(make_mla(), 1, 64), (make_mla(), 2, 32), (make_mamba(), 2, 3)],
)
def test_ranks_that_share_positions_hold_fewer_blocks_of_attention_and_all_of_a_state(
    layer: Layer, decode_context: int, num_blocks: int
) -> None:
    workload = Workload(max_model_len=1024, decode_context=decode_context)
    assert layer.max_blocks(workload) == num_blocks


@pytest.mark.parametrize("make_layer", [make_full, make_mla])
def test_a_layer_that_every_rank_keeps_whole_holds_blocks_for_all_tokens(make_layer: Any) -> None:
    layer = merge([make_layer(dcp_sharded=False), make_layer(dcp_sharded=False)])
    assert not layer.dcp_sharded
    assert layer.max_blocks(Workload(max_model_len=1024, decode_context=4)) == 64


def test_a_window_holds_what_it_sees_what_is_in_flight_and_one_block_more() -> None:
    # 1,023 tokens behind the one computed and 1,024 in flight are 2,047: 128 blocks, and one.
    layer = make_window(sliding_window=1024)
    assert layer.max_blocks(Workload(max_model_len=16_384, max_in_flight_tokens=1024)) == 129


def test_a_window_holds_no_more_than_the_longest_request_and_one_block() -> None:
    assert make_window(sliding_window=1024).max_blocks(Workload(max_model_len=64)) == 5


def test_a_window_that_retains_more_tokens_holds_more() -> None:
    layer = make_window(sliding_window=1024, extra_retained_tokens=2)
    assert layer.max_blocks(Workload(max_model_len=16_384, max_in_flight_tokens=1024)) == 130


def test_positions_of_a_window_cannot_be_spread_over_ranks() -> None:
    with pytest.raises(InvalidRequest, match="set their dcp_sharded to false") as refusal:
        make_plan({"full": make_full(), "window": make_window()}, parallel=Parallel(decode_context=2))
    assert refused_field(refusal) == "parallel.decode_context"


def test_a_window_that_every_rank_keeps_whole_can_be_beside_sharded_layers() -> None:
    layer = make_window(dcp_sharded=False)
    assert layer.max_blocks(Workload(max_model_len=64, decode_context=2)) == 5


def test_a_chunked_layer_holds_one_chunk_and_what_is_in_flight() -> None:
    layer = make_chunked(attention_chunk_size=512)
    assert layer.max_blocks(Workload(max_model_len=4096, max_in_flight_tokens=256)) == (512 + 256) // 16


@pytest.mark.parametrize(("mode", "num_states"), [("none", 1), ("align", 2), ("all", 64)])
def test_a_recurrent_layer_holds_states_as_its_mode_says_and_those_of_drafts(
    mode: str, num_states: int
) -> None:
    workload = Workload(max_model_len=1024, mamba_cache_mode=mode)
    assert make_mamba().max_blocks(workload) == num_states + 2


@pytest.mark.parametrize("kind", ["kpool_tail", "circular_buffer"])
@pytest.mark.parametrize("max_model_len", [1, 100_000])
def test_what_is_written_in_a_circle_holds_one_block_and_is_never_found(
    kind: str, max_model_len: int
) -> None:
    layer = ONE_OF_EACH_KIND[kind]
    assert layer.max_blocks(Workload(max_model_len=max_model_len)) == 1
    assert not layer.prefix_cacheable


def test_cross_attention_holds_the_encoder_input_whatever_the_decoder_computes() -> None:
    workload = Workload(max_model_len=16, max_encoder_tokens=1500)
    assert ONE_OF_EACH_KIND["cross_attention"].max_blocks(workload) == 94


def test_cross_attention_needs_to_know_the_longest_encoder_input() -> None:
    with pytest.raises(InvalidRequest, match="tokens of the longest encoder input") as refusal:
        make_plan({"cross": ONE_OF_EACH_KIND["cross_attention"]})
    assert refused_field(refusal) == "max_encoder_tokens"


def test_an_encoder_keeps_nothing() -> None:
    assert ONE_OF_EACH_KIND["encoder_only_attention"].max_blocks(Workload(max_model_len=1024)) == 0


# Kinds


def test_there_is_an_example_of_each_kind() -> None:
    assert {kind: type(layer) for kind, layer in ONE_OF_EACH_KIND.items()} == LAYER_KINDS


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_a_model_of_each_kind_can_be_planned(kind: str) -> None:
    layer = ONE_OF_EACH_KIND[kind]
    plan = make_plan({"first": layer, "second": layer}, max_encoder_tokens=1500)
    assert names_of(plan) == [["first", "second"]]
    assert plan.grouping.groups[0].form.kind == kind
    assert plan.num_blocks == 2**34 // (2 * layer.page_bytes)


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_a_model_of_each_kind_can_be_planned_beside_full_attention(kind: str) -> None:
    layers = {"full": make_full(), "other": ONE_OF_EACH_KIND[kind]}
    plan = make_plan(layers, layout=Layout.BLNHC, max_encoder_tokens=1500)
    assert {name for names in names_of(plan) for name in names} == set(layers)


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_a_layer_changed_and_changed_back_is_the_same(kind: str) -> None:
    layer = ONE_OF_EACH_KIND[kind]
    padded = layer.but(page_size_padded=2 * layer.page_bytes)
    assert padded != layer
    assert padded.but(page_size_padded=None) == layer


@pytest.mark.parametrize(
    ("layer", "can_pad"),
    [(make_full(), True), (make_window(), True), (make_mamba(), True), (make_mla(), False)],
)
def test_all_but_latent_pages_can_be_padded_to_any_size(layer: Layer, can_pad: bool) -> None:
    assert layer.can_pad_page() is can_pad


def test_only_a_state_does_not_grow_with_its_block() -> None:
    still = {kind for kind, layer in ONE_OF_EACH_KIND.items() if not layer.grows_with_block()}
    assert still == {Mamba.kind}


def test_every_window_and_latent_kind_is_an_attention_layer() -> None:
    for kind, layer in ONE_OF_EACH_KIND.items():
        assert isinstance(layer, AttentionLayer) is (kind != Mamba.kind)
        assert isinstance(layer, SlidingWindow) is (
            kind in {"sliding_window", "sliding_window_mla", "kpool_tail"}
        )


@pytest.mark.parametrize("field", ["block_size", "num_kv_heads", "head_size", "page_size_padded"])
def test_a_count_below_1_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        make_full(**{field: 0})
    assert refusal.value.figures["errors"][0]["field"] == field


def test_an_aligned_page_stays_aligned_when_its_block_grows() -> None:
    layer = make_mla(head_size=100, dtype="uint8", alignment=1024)
    assert layer.page_bytes == 2048
    assert layer.but(block_size=32).page_bytes == 4096
    assert layer.but(block_size=48).page_bytes == 5120
