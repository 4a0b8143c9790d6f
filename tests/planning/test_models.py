"""Published models, by the fields of their ``config.json``: what they keep, worked out by hand."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from blockyard.planning.layers import (
    AttentionLayer,
    ChunkedLocalAttention,
    CrossAttention,
    FullAttention,
    Layer,
    Mamba,
    MlaAttention,
    SlidingWindow,
)
from blockyard.planning.models import ModelLayers, layers_of_model
from blockyard.planning.parallel import Parallel

DATA = Path(__file__).parent / "data" / "models"


def published(name: str) -> dict[str, Any]:
    """The published fields of the model ``name`` that say anything of its caches."""
    config: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return config


def read(name: str, tensor: int = 1, pipeline: int = 1, **options: Any) -> ModelLayers:
    return layers_of_model(published(name), parallel=Parallel(tensor=tensor, pipeline=pipeline), **options)


def bytes_per_token(layers: dict[str, Layer]) -> int:
    """Of attention layers with pages of no padding."""
    attention = [layer for layer in layers.values() if isinstance(layer, AttentionLayer)]
    assert all(layer.page_bytes % layer.block_size == 0 for layer in attention)
    return sum(layer.page_bytes // layer.block_size for layer in attention)


def kinds(layers: dict[str, Layer]) -> Counter[str]:
    return Counter(layer.kind for layer in layers.values())


def numbers(layers: dict[str, Layer], kind: type[Layer]) -> list[int]:
    """The hidden layers that keep a cache of ``kind``."""
    return [int(name.split(".")[2]) for name, layer in layers.items() if isinstance(layer, kind)]


# Layers, KV heads and elements a head; a key and a value of two bytes an element.
FULL_ATTENTION = {
    "llama-2-7b": (32, 32, 128, 4096),
    "llama-3.1-8b": (32, 8, 128, 131_072),
    "llama-3.1-70b": (80, 8, 128, 131_072),
    "mistral-7b-v0.3": (32, 8, 128, 32_768),
    "mixtral-8x7b": (32, 8, 128, 32_768),
    "qwen2-7b-instruct": (28, 4, 128, 32_768),
    "qwen2.5-7b-instruct": (28, 4, 128, 32_768),
    "qwen3-8b": (36, 8, 128, 40_960),
    "qwen3-30b-a3b": (48, 4, 128, 40_960),
    "phi-4": (40, 10, 128, 16_384),
    "glm-4-9b-0414": (40, 2, 128, 32_768),
    "glm-4-9b-chat": (40, 2, 128, 131_072),
    "glm-4.5": (92, 8, 128, 131_072),
    "granite-3.3-8b-instruct": (40, 8, 128, 131_072),
    "gpt2": (12, 12, 64, 1024),
    "pythia-6.9b": (32, 32, 128, 2048),
    "opt-6.7b": (32, 32, 128, 2048),
    "falcon-7b": (32, 1, 64, None),
}


@pytest.mark.parametrize("name", FULL_ATTENTION)
def test_plain_attention_keeps_a_key_and_a_value_a_head_and_layer(name: str) -> None:
    num_layers, num_kv_heads, head_size, max_model_len = FULL_ATTENTION[name]
    model = read(name)
    assert kinds(model.ranks[0]) == {"full_attention": num_layers}
    assert bytes_per_token(model.ranks[0]) == num_layers * num_kv_heads * (head_size + head_size) * 2
    assert (model.num_hidden_layers, model.max_model_len) == (num_layers, max_model_len)
    assert (model.max_encoder_tokens, model.index_topk) == (None, None)


def test_figures_that_the_field_knows_come_out() -> None:
    # 128 KiB a token of Llama 3.1 8B, 320 KiB of 70B, 512 KiB of Llama 2 7B, 56 KiB of Qwen 2.5 7B.
    assert bytes_per_token(read("llama-3.1-8b").ranks[0]) == 2 * 32 * 8 * 128 * 2 == 131_072
    assert bytes_per_token(read("llama-3.1-70b").ranks[0]) == 2 * 80 * 8 * 128 * 2 == 327_680
    assert bytes_per_token(read("llama-2-7b").ranks[0]) == 2 * 32 * 32 * 128 * 2 == 524_288
    assert bytes_per_token(read("qwen2.5-7b-instruct").ranks[0]) == 2 * 28 * 4 * 128 * 2 == 57_344
    assert bytes_per_token(read("glm-4.5").ranks[0]) == 2 * 92 * 8 * 128 * 2 == 376_832


def test_layers_are_named_as_engines_register_them() -> None:
    names = list(read("llama-3.1-8b").ranks[0])
    assert names == [f"model.layers.{number}.self_attn.attn" for number in range(32)]


# Layers with a window, its tokens, and layers without.
WINDOWS = {
    "mistral-7b-v0.1": (32, 4096, 0),
    "phi-3-mini-4k": (32, 2047, 0),
    "gemma-2-9b-it": (21, 4096, 21),
    "gemma-3-27b-it": (52, 1024, 10),
    "gpt-oss-20b": (12, 128, 12),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_where_the_architecture_has_them(name: str) -> None:
    num_sliding, window, num_full = WINDOWS[name]
    layers = read(name).ranks[0]
    sliding = [layer for layer in layers.values() if isinstance(layer, SlidingWindow)]
    assert {layer.sliding_window for layer in sliding} == {window}
    assert (len(sliding), kinds(layers)["full_attention"]) == (num_sliding, num_full)


def test_gemma_2_and_gpt_oss_begin_with_a_window_and_alternate() -> None:
    for name in ("gemma-2-9b-it", "gpt-oss-20b"):
        layers = read(name).ranks[0]
        assert numbers(layers, SlidingWindow) == list(range(0, len(layers), 2))
    # gemma-2-9b: 42 layers, 8 KV heads of 256. gpt-oss-20b: 24 layers, 8 of 64.
    assert bytes_per_token(read("gemma-2-9b-it").ranks[0]) == 2 * 42 * 8 * 256 * 2 == 344_064
    assert bytes_per_token(read("gpt-oss-20b").ranks[0]) == 2 * 24 * 8 * 64 * 2 == 49_152


def test_gemma_3_has_full_attention_in_every_sixth_layer() -> None:
    model = read("gemma-3-27b-it")
    assert model.model_type == "gemma3_text"
    assert numbers(model.ranks[0], FullAttention) == [5, 11, 17, 23, 29, 35, 41, 47, 53, 59]
    assert bytes_per_token(model.ranks[0]) == 2 * 62 * 16 * 128 * 2 == 507_904


@pytest.mark.parametrize(
    ("stated", "num_kv_heads"),
    [
        ({"hidden_size": 2560, "num_hidden_layers": 34}, 4),  # gemma-3-4b-it leaves its heads out
        (  # gemma-3-12b-it their size: 256, though 3,840 / 16 is 240
            {
                "hidden_size": 3840,
                "num_hidden_layers": 48,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
            },
            8,
        ),
    ],
)
def test_sizes_that_gemma_3_leaves_out_are_its_class_s(stated: dict[str, int], num_kv_heads: int) -> None:
    config = {"model_type": "gemma3_text", "torch_dtype": "bfloat16", "sliding_window": 1024, **stated}
    layers = layers_of_model(config, parallel=Parallel()).ranks[0]
    assert bytes_per_token(layers) == 2 * stated["num_hidden_layers"] * num_kv_heads * 256 * 2


def test_llama_4_is_chunked_but_for_every_fourth_layer() -> None:
    model = read("llama-4-scout")
    layers = model.ranks[0]
    assert numbers(layers, FullAttention) == list(range(3, 48, 4))
    chunked = [layer for layer in layers.values() if isinstance(layer, ChunkedLocalAttention)]
    assert {layer.attention_chunk_size for layer in chunked} == {8192}
    assert len(chunked) == 36
    assert bytes_per_token(layers) == 2 * 48 * 8 * 128 * 2 == 196_608
    assert (model.model_type, model.max_model_len) == ("llama4_text", 10_485_760)


@pytest.mark.parametrize(
    ("name", "num_layers"), [("deepseek-v2-lite", 27), ("deepseek-v3", 61), ("kimi-k2-instruct", 61)]
)
def test_latent_attention_keeps_one_vector_a_layer_on_every_rank(name: str, num_layers: int) -> None:
    # 512 latent and 64 rotary elements of two bytes: 1,152 a layer, 70,272 for the 61 of DeepSeek-V3.
    model = read(name, tensor=8)
    assert len(model.ranks) == 8
    for layers in model.ranks:
        assert kinds(layers) == {"mla_attention": num_layers}
        assert bytes_per_token(layers) == num_layers * (512 + 64) * 2
        assert {layer.num_replicas(8, 1) for layer in layers.values()} == {8}
    assert 61 * 576 * 2 == 70_272


def test_sparse_attention_keeps_an_indexer_beside_every_layer() -> None:
    model = read("deepseek-v3.2", block_size=64)
    layers = model.ranks[0]
    assert model.index_topk == 2048
    assert list(layers)[:2] == ["model.layers.0.self_attn.attn", "model.layers.0.self_attn.indexer.k_cache"]
    # An indexer's key: 128 bytes and one scale of four.
    assert bytes_per_token(layers) == 61 * (576 * 2 + 128 + 4) == 78_324
    roles = Counter(
        (layer.cache_role, layer.is_index_group_leader)
        for layer in layers.values()
        if isinstance(layer, MlaAttention)
    )
    assert roles == {("sparse", True): 61, ("indexer", False): 61}


@pytest.mark.parametrize("kv_cache_dtype", ["fp8", "fp8_e4m3", "fp8_ds_mla"])
def test_sparse_attention_in_8_bits_packs_a_latent_into_656_bytes(kv_cache_dtype: str) -> None:
    layers = read("deepseek-v3.2", block_size=64, kv_cache_dtype=kv_cache_dtype).ranks[0]
    # 512 bytes, four scales of 4, and 64 rotary elements of 2: 656.
    assert 512 + 4 * 4 + 64 * 2 == 656
    assert bytes_per_token(layers) == 61 * (656 + 132) == 48_068
    # Without an indexer, 8-bit latents are one byte an element.
    assert bytes_per_token(read("deepseek-v3", kv_cache_dtype="fp8").ranks[0]) == 61 * 576


def test_qwen3_next_pads_states_to_pages_of_544_tokens() -> None:
    model = read("qwen3-next-80b-a3b")
    layers = model.ranks[0]
    assert numbers(layers, FullAttention) == list(range(3, 48, 4))
    state, attention = layers["model.layers.0.linear_attn"], layers["model.layers.3.self_attn.attn"]
    assert isinstance(state, Mamba)
    # Convolution: 3 inputs of 2 * 16 * 128 + 32 * 128 channels; recurrence: 32 maps of 128 to 128.
    assert state.shapes == ((3, 8192), (32, 128, 128))
    assert state.content_bytes == (3 * 8192 + 32 * 128 * 128) * 2 == 1_097_728
    # 2 KV heads of 256: 2,048 bytes a token; 1,097,728 / 32,768 = 33.5, so 34 times 16 tokens.
    assert attention.block_size == state.block_size == 34 * 16 == 544
    assert attention.page_bytes == state.page_bytes == 544 * 2048 == 1_114_112
    assert bytes_per_token(layers) == 12 * 2 * 256 * 2 * 2 == 24_576


def test_qwen3_next_is_shared_by_heads() -> None:
    layers = read("qwen3-next-80b-a3b", tensor=4).ranks[0]
    state, attention = layers["model.layers.0.linear_attn"], layers["model.layers.3.self_attn.attn"]
    assert isinstance(state, Mamba)
    assert state.shapes == ((3, 8192 // 4), (32 // 4, 128, 128))
    assert isinstance(attention, FullAttention)
    assert attention.num_kv_heads == 1
    assert attention.num_replicas(4, 1) == 2


def test_drafts_lengthen_the_convolution_and_keep_more_states() -> None:
    state = read("qwen3-next-80b-a3b", num_speculative_blocks=2).ranks[0]["model.layers.0.linear_attn"]
    assert isinstance(state, Mamba)
    assert state.shapes[0] == (3 + 2, 8192)
    assert state.num_speculative_blocks == 2


def test_kimi_linear_has_latent_attention_in_seven_of_27_layers() -> None:
    model = read("kimi-linear-48b-a3b")
    layers = model.ranks[0]
    assert numbers(layers, MlaAttention) == [3, 7, 11, 15, 19, 23, 26]
    state, attention = layers["model.layers.0.linear_attn"], layers["model.layers.3.self_attn.attn"]
    assert isinstance(state, Mamba)
    # Queries, keys and values of 32 heads of 128: 12,288 channels in bf16; 32 maps of 128 to 128 in float32.
    assert state.shapes == ((3, 12_288), (32, 128, 128))
    assert state.content_bytes == 3 * 12_288 * 2 + 32 * 128 * 128 * 4 == 2_170_880
    # 1,152 bytes a token; 2,170,880 / (16 * 1,152) = 117.8.
    assert attention.block_size == 118 * 16
    assert state.page_bytes == attention.page_bytes == 118 * 16 * 1152
    assert (bytes_per_token(layers), model.max_model_len) == (7 * 576 * 2, 1_048_576)


def test_granite_4_has_attention_in_four_of_40_layers() -> None:
    layers = read("granite-4.0-h-small").ranks[0]
    assert numbers(layers, FullAttention) == [5, 15, 25, 35]
    state, attention = layers["model.layers.0.mixer"], layers["model.layers.5.self_attn.attn"]
    assert isinstance(state, Mamba)
    # 128 heads of 64 channels, and twice one group of 128: 8,448 channels.
    assert state.shapes == ((3, 128 * 64 + 2 * 128), (128, 64, 128))
    assert state.content_bytes == 3 * 8448 * 2 + 128 * 64 * 128 * 4 == 4_244_992
    # 4,096 bytes a token; 4,244,992 / 65,536 = 64.8.
    assert attention.block_size == 65 * 16
    assert bytes_per_token(layers) == 4 * 8 * 128 * 2 * 2 == 16_384


def test_mamba_2_keeps_states_alone_in_blocks_of_the_size_asked_for() -> None:
    layers = read("mamba-codestral-7b", block_size=256).ranks[0]
    assert kinds(layers) == {"mamba": 64}
    state = layers["model.layers.63.mixer"]
    assert isinstance(state, Mamba)
    # 8,192 channels, and twice eight groups of 128.
    assert state.shapes == ((3, 8192 + 2 * 8 * 128), (128, 64, 128))
    assert state.dtypes == ("bfloat16", "float32")
    assert state.page_bytes == 3 * 10_240 * 2 + 128 * 64 * 128 * 4 == 4_255_744
    assert (state.block_size, state.page_size_padded) == (256, None)


def test_groups_of_mamba_2_are_shared_and_a_single_one_is_copied() -> None:
    eight_groups = read("mamba-codestral-7b", tensor=4).ranks[0]["model.layers.0.mixer"]
    assert isinstance(eight_groups, Mamba)
    assert eight_groups.shapes == ((3, (8192 + 2 * 8 * 128) // 4), (32, 64, 128))
    one_group = read("granite-4.0-h-small", tensor=4).ranks[0]["model.layers.0.mixer"]
    assert isinstance(one_group, Mamba)
    # Engines make four of the one group: (8,192 + 2 * 4 * 128) / 4.
    assert one_group.shapes == ((3, (8192 + 2 * 4 * 128) // 4), (32, 64, 128))


def test_falcon_h1_keeps_both_in_every_layer() -> None:
    layers = read("falcon-h1-7b").ranks[0]
    assert list(layers)[:2] == ["model.layers.0.self_attn.attn", "model.layers.0.mixer"]
    assert kinds(layers) == {"full_attention": 44, "mamba": 44}
    state, attention = layers["model.layers.0.mixer"], layers["model.layers.0.self_attn.attn"]
    assert isinstance(state, Mamba)
    assert state.shapes == ((3, 3072 + 2 * 256), (24, 128, 256))
    assert state.content_bytes == 3 * 3584 * 2 + 24 * 128 * 256 * 4 == 3_167_232
    # 1,024 bytes a token; 3,167,232 / 16,384 = 193.3.
    assert attention.block_size == 194 * 16
    assert bytes_per_token(layers) == 44 * 2 * 128 * 2 * 2 == 45_056


def test_jamba_has_attention_in_one_layer_of_eight() -> None:
    layers = read("jamba-v0.1").ranks[0]
    assert numbers(layers, FullAttention) == [4, 12, 20, 28]
    state, attention = layers["model.layers.0.mixer"], layers["model.layers.4.self_attn.attn"]
    assert isinstance(state, Mamba)
    assert state.shapes == ((3, 8192), (8192, 16))
    assert state.content_bytes == 3 * 8192 * 2 + 8192 * 16 * 4 == 573_440
    # 4,096 bytes a token; 573,440 / 65,536 = 8.75.
    assert attention.block_size == 9 * 16
    assert bytes_per_token(layers) == 4 * 8 * 128 * 2 * 2
    halves = read("jamba-v0.1", tensor=2).ranks[0]["model.layers.0.mixer"]
    assert isinstance(halves, Mamba)
    assert halves.shapes == ((3, 4096), (4096, 16))


def test_whisper_keeps_self_attention_and_cross_attention_in_its_decoder() -> None:
    model = read("whisper-large-v3")
    layers = model.ranks[0]
    assert list(layers)[:2] == [
        "model.decoder.layers.0.self_attn.attn",
        "model.decoder.layers.0.encoder_attn.attn",
    ]
    assert kinds(layers) == {"full_attention": 32, "cross_attention": 32}
    assert {layer.dtype for layer in layers.values() if isinstance(layer, CrossAttention)} == {"float16"}
    # 20 heads of 64: 5,120 bytes a token, for decoded and for encoded ones.
    assert bytes_per_token(layers) == 2 * 32 * (2 * 20 * 64 * 2) == 327_680
    assert (model.max_model_len, model.max_encoder_tokens) == (448, 1500)


def test_a_distilled_whisper_has_the_decoder_s_layers() -> None:
    turbo = {**published("whisper-large-v3"), "decoder_layers": 4}
    assert layers_of_model(turbo, parallel=Parallel()).num_hidden_layers == 4


def test_kv_heads_are_shared_and_copied_once_there_are_more_ranks() -> None:
    for tensor, num_kv_heads, num_replicas in ((1, 8, 1), (4, 2, 1), (8, 1, 1), (16, 1, 2)):
        model = read("llama-3.1-70b", tensor=tensor)
        assert len(model.ranks) == tensor
        layer = model.ranks[-1]["model.layers.79.self_attn.attn"]
        assert isinstance(layer, FullAttention)
        assert (layer.num_kv_heads, layer.num_replicas(tensor, 1)) == (num_kv_heads, num_replicas)


def test_ranks_are_stages_of_shards() -> None:
    model = read("gemma-3-27b-it", tensor=2, pipeline=4)
    assert len(model.ranks) == 8
    # 62 layers over 4 stages: the two left over go to the middle.
    assert [len(layers) for layers in model.ranks] == [15, 15, 16, 16, 16, 16, 15, 15]
    assert next(iter(model.ranks[2])) == "model.layers.15.self_attn.attn"
    names = [name for layers in model.ranks[::2] for name in layers]
    assert names == list(read("gemma-3-27b-it").ranks[0])


def test_a_stage_without_attention_has_the_pages_of_the_whole_model() -> None:
    layers = read("jamba-v0.1", pipeline=8).ranks[0]
    assert kinds(layers) == {"mamba": 4}
    assert {layer.page_bytes for layer in layers.values()} == {9 * 16 * 4096}


# Bytes of a key or a value of 128 elements.
STORED = {
    "auto": ("bfloat16", 256),
    "bfloat16": ("bfloat16", 256),
    "float16": ("float16", 256),
    "float32": ("float32", 512),
    "fp8": ("float8_e4m3fn", 128),
    "fp8_e4m3": ("float8_e4m3fn", 128),
    "fp8_e5m2": ("float8_e5m2", 128),
    "nvfp4": ("uint8", 64 + 8),
    "fp8_per_token_head": ("uint8", 128 + 4),
    "int8_per_token_head": ("uint8", 128 + 4),
}


@pytest.mark.parametrize("kv_cache_dtype", STORED)
def test_keys_and_values_are_stored_in_the_type_asked_for(kv_cache_dtype: str) -> None:
    dtype, vector_bytes = STORED[kv_cache_dtype]
    layers = read("llama-3.1-8b", kv_cache_dtype=kv_cache_dtype).ranks[0]
    layer = layers["model.layers.0.self_attn.attn"]
    assert isinstance(layer, FullAttention)
    assert layer.dtype == dtype
    assert bytes_per_token(layers) == 32 * 8 * 2 * vector_bytes


def test_states_keep_the_model_s_type_whatever_keys_are_stored_in() -> None:
    layers = read("qwen3-next-80b-a3b", kv_cache_dtype="fp8").ranks[0]
    state, attention = layers["model.layers.0.linear_attn"], layers["model.layers.3.self_attn.attn"]
    assert isinstance(state, Mamba)
    assert state.dtypes == ("bfloat16", "bfloat16")
    # 1,024 bytes a token: 1,097,728 / 16,384 = 67.
    assert attention.block_size == 67 * 16
    assert (state.page_size_padded, attention.page_bytes) == (None, 1_097_728)


def test_the_configuration_can_state_what_a_recurrence_is_kept_in() -> None:
    wide = {**published("qwen3-next-80b-a3b"), "mamba_ssm_dtype": "float32"}
    state = layers_of_model(wide, parallel=Parallel()).ranks[0]["model.layers.0.linear_attn"]
    assert isinstance(state, Mamba)
    assert state.dtypes == ("bfloat16", "float32")


def test_align_mode_is_passed_on() -> None:
    state = read("qwen3-next-80b-a3b", mamba_cache_mode="align").ranks[0]["model.layers.0.linear_attn"]
    assert isinstance(state, Mamba)
    assert state.mamba_cache_mode == "align"
