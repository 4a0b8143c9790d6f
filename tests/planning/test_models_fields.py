"""What of a configuration is not understood is refused and named; nothing else ever comes of one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import UnsupportedModel
from blockyard.planning.layers import FullAttention, SlidingWindow
from blockyard.planning.models import layers_of_model
from blockyard.planning.parallel import Parallel

DATA = Path(__file__).parent / "data" / "models"
PUBLISHED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))
}
PLAIN = {
    "model_type": "newcomer",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "torch_dtype": "bfloat16",
}


def refused_field(config: Any, **options: Any) -> str:
    """The field that a refusal of ``config`` names."""
    with pytest.raises((UnsupportedModel, InvalidRequest)) as refusal:
        layers_of_model(config, parallel=options.pop("parallel", Parallel()), **options)
    figures = refusal.value.figures
    if isinstance(refusal.value, UnsupportedModel):
        assert figures["field"] in str(refusal.value)
        return str(figures["field"])
    return str(figures["errors"][0]["field"])


def spans_of(config: dict[str, Any]) -> list[int | None]:
    """Each layer's window."""
    layers = layers_of_model(config, parallel=Parallel()).ranks[0].values()
    return [layer.sliding_window if isinstance(layer, SlidingWindow) else None for layer in layers]


NEEDED = {
    "llama-3.1-8b": ("num_hidden_layers", "num_attention_heads", "hidden_size"),
    "mistral-7b-v0.3": ("num_key_value_heads",),
    "qwen2.5-7b-instruct": ("num_key_value_heads",),
    "gemma-2-9b-it": ("num_hidden_layers", "num_attention_heads", "sliding_window"),
    "deepseek-v3": ("num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim"),
    "deepseek-v3.2": ("index_head_dim", "index_topk"),
    "qwen3-next-80b-a3b": (
        "linear_num_key_heads",
        "linear_key_head_dim",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    ),
    "kimi-linear-48b-a3b": ("linear_attn_config", "kv_lora_rank"),
    "granite-4.0-h-small": (
        "layer_types",
        "mamba_n_heads",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_n_groups",
    ),
    "mamba-codestral-7b": ("num_hidden_layers", "expand", "state_size", "conv_kernel", "n_groups"),
    "falcon-h1-7b": ("mamba_n_heads", "mamba_d_conv", "num_attention_heads"),
    "jamba-v0.1": ("attn_layer_period", "attn_layer_offset", "mamba_d_state", "mamba_expand"),
    "whisper-large-v3": ("decoder_layers", "decoder_attention_heads", "d_model", "max_source_positions"),
}


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, fields in NEEDED.items() for field in fields]
)
def test_a_missing_field_is_named(name: str, field: str) -> None:
    config = {key: value for key, value in PUBLISHED[name].items() if key != field}
    with pytest.raises(UnsupportedModel) as refusal:
        layers_of_model(config, parallel=Parallel())
    assert refusal.value.figures == {"model_type": config["model_type"], "field": field}


@pytest.mark.parametrize("value", ["32", -1, 0, True, 32.0, [], {}, 10**30, 10_001])
def test_a_number_of_layers_that_cannot_be_is_named(value: object) -> None:
    config = {**PUBLISHED["llama-3.1-8b"], "num_hidden_layers": value}
    assert refused_field(config) == "hf_config.num_hidden_layers"


def test_a_field_of_the_text_part_is_named_with_its_place() -> None:
    text = {**PUBLISHED["gemma-3-27b-it"]["text_config"], "head_dim": "128"}
    assert (
        refused_field({**PUBLISHED["gemma-3-27b-it"], "text_config": text})
        == "hf_config.text_config.head_dim"
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hidden_size": 4097}, "hf_config.hidden_size"),
        ({"num_key_value_heads": 5}, "hf_config.num_key_value_heads"),
        ({"torch_dtype": "int8"}, "hf_config.torch_dtype"),
        ({"torch_dtype": 16}, "hf_config.torch_dtype"),
        ({"text_config": "llama"}, "hf_config.text_config"),
        ({"model_type": 7}, "hf_config.model_type"),
        ({"layer_types": ["full_attention"]}, "hf_config.layer_types"),
        ({"layer_types": ["full_attention", "magic"] * 16}, "layer_types"),
        ({"layer_types": ["full_attention", 7] * 16}, "hf_config.layer_types"),
        ({"layer_types": ["full_attention", "sliding_attention"] * 16}, "sliding_window"),
        ({"sliding_window": 0}, "hf_config.sliding_window"),
        ({"max_position_embeddings": "long"}, "hf_config.max_position_embeddings"),
    ],
)
def test_a_field_that_is_wrong_is_named(changes: dict[str, object], field: str) -> None:
    assert refused_field({**PUBLISHED["llama-3.1-8b"], **changes}) == field


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("jamba-v0.1", {"attn_layer_offset": 8}, "hf_config.attn_layer_offset"),
        ("jamba-v0.1", {"mamba_d_conv": 1}, "hf_config.mamba_d_conv"),
        ("mamba-codestral-7b", {"num_heads": 100}, "hf_config.num_heads"),
        ("granite-4.0-h-small", {"layer_types": ["mamba", "conv"] * 20}, "layer_types"),
        ("qwen3-next-80b-a3b", {"layer_types": ["linear_attention", "mamba"] * 24}, "layer_types"),
        ("llama-4-scout", {"text_config": {"no_rope_layers": [1]}}, "hf_config.text_config.no_rope_layers"),
        ("kimi-linear-48b-a3b", {"num_hidden_layers": 28}, "hf_config.linear_attn_config.kda_layers"),
        ("whisper-large-v3", {"d_model": 1281}, "hf_config.d_model"),
    ],
)
def test_a_family_s_field_that_is_wrong_is_named(name: str, changes: dict[str, Any], field: str) -> None:
    config = dict(PUBLISHED[name])
    for key, value in changes.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    assert refused_field(config) == field


@pytest.mark.parametrize("config", [{}, {"num_hidden_layers": 2}, {"model_type": None}, {"text_config": {}}])
def test_a_model_without_a_type_is_refused(config: dict[str, Any]) -> None:
    assert refused_field(config) == "model_type"


def test_an_unknown_model_is_read_as_plain_attention_by_its_fields() -> None:
    model = layers_of_model(PLAIN, parallel=Parallel(tensor=2))
    layer = model.ranks[1]["model.layers.3.self_attn.attn"]
    assert layer == FullAttention(
        block_size=16, num_kv_heads=1, head_size=64, dtype="bfloat16", max_tp_shards=2
    )


def test_an_unknown_model_may_use_the_older_names() -> None:
    older = {"model_type": "newcomer", "n_layer": 2, "n_head": 4, "n_embd": 64, "dtype": "torch.float16"}
    layer = layers_of_model(older, parallel=Parallel()).ranks[0]["model.layers.1.self_attn.attn"]
    assert layer == FullAttention(
        block_size=16, num_kv_heads=4, head_size=16, dtype="float16", max_tp_shards=4
    )
    one_head = layers_of_model({**older, "multi_query": True}, parallel=Parallel()).ranks[0]
    assert [layer.num_heads for layer in one_head.values()] == [1, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mamba_d_state", 16),
        ("ssm_cfg", {"layer": "Mamba2"}),
        ("kv_lora_rank", 512),
        ("conv_kernel", 4),
        ("linear_num_value_heads", 32),
        ("layers_block_type", ["mamba"]),
        ("num_kv_shared_layers", 10),
        ("cross_attention_layers", [3]),
        ("index_topk", 2048),
        ("is_encoder_decoder", True),
        ("attention_chunk_size", 8192),
        ("architectures", ["NewcomerForMaskedLM"]),
        ("time_mix_extra_dim", 32),
    ],
)
def test_an_unknown_model_that_is_not_plain_attention_is_refused(field: str, value: object) -> None:
    assert refused_field({**PLAIN, field: value}) == field


def test_fields_that_do_not_apply_are_no_reason_to_refuse() -> None:
    unused = {"is_encoder_decoder": False, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None}
    assert layers_of_model({**PLAIN, **unused}, parallel=Parallel()).num_hidden_layers == 4


def test_an_unknown_model_has_to_say_which_layers_have_a_window() -> None:
    windowed = {**PLAIN, "sliding_window": 128}
    assert refused_field(windowed) == "layer_types"
    assert spans_of({**windowed, "use_sliding_window": False}) == [None] * 4
    types = ["sliding_attention", "full_attention"] * 2
    assert spans_of({**windowed, "layer_types": types}) == [128, None, 128, None]


def test_kv_heads_of_an_unknown_name_are_no_reason_to_guess() -> None:
    config = {**PLAIN, "num_key_value_heads": None, "kv_n_heads": 2}
    assert refused_field(config) == "kv_n_heads"


@pytest.mark.parametrize("model_type", ["bert", "roberta", "modernbert"])
def test_an_encoder_keeps_nothing_and_is_refused(model_type: str) -> None:
    assert refused_field({**PLAIN, "model_type": model_type}) == "model_type"


@pytest.mark.parametrize("wrapper", ["text_config", "language_config", "llm_config"])
def test_the_language_model_is_found_inside_a_model_of_several_modalities(wrapper: str) -> None:
    inner = PUBLISHED["mistral-7b-v0.1"]
    outer = {"model_type": "seer", "vision_config": {"num_hidden_layers": 24}, wrapper: inner}
    model = layers_of_model(outer, parallel=Parallel())
    assert model == layers_of_model(inner, parallel=Parallel())
    assert layers_of_model({"thinker_config": outer}, parallel=Parallel()) == model


def test_llama_without_kv_heads_is_multi_head() -> None:
    first = {name: value for name, value in PUBLISHED["llama-2-7b"].items() if name != "num_key_value_heads"}
    published = layers_of_model(PUBLISHED["llama-2-7b"], parallel=Parallel())
    assert layers_of_model(first, parallel=Parallel()) == published


def test_layers_without_rotary_positions_can_be_stated() -> None:
    scout = PUBLISHED["llama-4-scout"]["text_config"]
    stated = {**scout, "num_hidden_layers": 3, "no_rope_layers": [0, 1, 0]}
    layers = layers_of_model(stated, parallel=Parallel()).ranks[0].values()
    assert [layer.kind for layer in layers] == ["full_attention", "chunked_local_attention", "full_attention"]
    unbounded = layers_of_model({**stated, "attention_chunk_size": None}, parallel=Parallel()).ranks[0]
    assert {layer.kind for layer in unbounded.values()} == {"full_attention"}


def test_windows_of_qwen_begin_at_a_layer_and_only_when_switched_on() -> None:
    qwen = {
        **PUBLISHED["qwen2.5-7b-instruct"],
        "num_hidden_layers": 4,
        "sliding_window": 64,
        "max_window_layers": 3,
    }
    assert spans_of(qwen) == [None] * 4
    assert spans_of({**qwen, "use_sliding_window": True}) == [None, None, None, 64]


def test_gemma_s_pattern_can_be_stated() -> None:
    gemma = {**PUBLISHED["gemma-2-9b-it"], "model_type": "gemma3_text", "num_hidden_layers": 3}
    assert spans_of({**gemma, "sliding_window_pattern": 3}) == [4096, 4096, None]


def test_a_type_around_the_text_part_holds_inside_and_an_inner_one_wins() -> None:
    outer = {**PUBLISHED["gemma-3-27b-it"], "torch_dtype": "float32"}
    assert {layer.state_bytes for layer in layers_of_model(outer, parallel=Parallel()).ranks[0].values()} == {
        1024
    }
    inner = {**outer, "text_config": {**outer["text_config"], "dtype": "bfloat16"}}
    assert {layer.state_bytes for layer in layers_of_model(inner, parallel=Parallel()).ranks[0].values()} == {
        512
    }


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama-3.1-8b", 3),
        ("llama-3.1-8b", 12),
        ("qwen3-next-80b-a3b", 32),
        ("mamba-codestral-7b", 16),
        ("jamba-v0.1", 3),
        ("kimi-linear-48b-a3b", 5),
        ("whisper-large-v3", 8),
    ],
)
def test_ranks_that_cannot_share_evenly_are_refused(name: str, tensor: int) -> None:
    assert refused_field(PUBLISHED[name], parallel=Parallel(tensor=tensor)) == "parallel.tensor"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"parallel": Parallel(pipeline=62)}, "parallel.pipeline"),
        ({"parallel": Parallel(num_hidden_layers=60)}, "parallel.num_hidden_layers"),
        ({"parallel": Parallel(pipeline=2, pipeline_partition=(30, 30))}, "parallel.pipeline_partition"),
        ({"block_size": 0}, "block_size"),
        ({"mamba_cache_mode": "some"}, "mamba_cache_mode"),
        ({"num_speculative_blocks": -1}, "num_speculative_blocks"),
        ({"kv_cache_dtype": "fp7"}, "kv_cache_dtype"),
        ({"kv_cache_dtype": "nvfp4"}, "kv_cache_dtype"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(options: dict[str, Any], field: str) -> None:
    assert refused_field(PUBLISHED["deepseek-v3"], **options) == field


@pytest.mark.parametrize(
    ("name", "changes", "kv_cache_dtype"),
    [
        ("llama-3.1-8b", {}, "fp8_ds_mla"),
        ("llama-3.1-8b", {"head_dim": 100}, "nvfp4"),
        ("deepseek-v3.2", {"kv_lora_rank": 256}, "fp8"),
    ],
)
def test_a_cache_that_cannot_be_stored_so_is_refused(
    name: str, changes: dict[str, int], kv_cache_dtype: str
) -> None:
    assert refused_field({**PUBLISHED[name], **changes}, kv_cache_dtype=kv_cache_dtype) == "kv_cache_dtype"


FIELDS = sorted(
    {field for config in PUBLISHED.values() for field in config}
    | {field for config in PUBLISHED.values() for field in config.get("text_config", {})}
    | set(PUBLISHED["kimi-linear-48b-a3b"]["linear_attn_config"])
    | {
        "llm_config",
        "layers_block_type",
        "mamba_ssm_dtype",
        "sliding_window_pattern",
        "no_rope_layer_interval",
    }
)
TYPES = sorted({config["model_type"] for config in PUBLISHED.values()} | {"gemma3_text", "newcomer", "bert"})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.sampled_from([2**31, 10**30, 1e300, float("nan"), "", "auto", "mamba", "bfloat16", *TYPES])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=600, deadline=None)
@given(
    config=st.sampled_from(sorted(PUBLISHED)),
    changes=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
    inside=st.booleans(),
    tensor=st.sampled_from([1, 2, 3, 16]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8", "nvfp4", "int8_per_token_head", "fp8_ds_mla"]),
)
def test_any_change_to_a_configuration_is_understood_or_refused(
    config: str, changes: dict[str, Any], inside: bool, tensor: int, kv_cache_dtype: str
) -> None:
    changed = dict(PUBLISHED[config])
    if inside and isinstance(changed.get("text_config"), dict):
        changed["text_config"] = {**changed["text_config"], **changes}
    else:
        changed |= changes
    try:
        model = layers_of_model(changed, parallel=Parallel(tensor=tensor), kv_cache_dtype=kv_cache_dtype)
    except (UnsupportedModel, InvalidRequest):
        return
    assert len(model.ranks) == tensor
    assert all(layer.page_bytes > 0 for layer in model.ranks[0].values())


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES) | VALUES)
def test_anything_at_all_is_understood_or_refused(config: Any) -> None:
    try:
        layers_of_model(config, parallel=Parallel())
    except (UnsupportedModel, InvalidRequest):
        return
