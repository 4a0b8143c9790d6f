"""Decoders whose every layer keeps keys and values; families differ in how far layers look back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from blockyard.planning.errors import UnsupportedModel
from blockyard.planning.models.architecture import Architecture, Reader
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.fields import MAX_NAME_CHARACTERS, ConfigFields
from blockyard.planning.models.heads import NUM_KV_HEADS, Heads
from blockyard.planning.models.spans import SpansOf, as_stated

MODULE: Final = "self_attn.attn"


def attention_only(
    spans_of: SpansOf,
    *,
    grouped: bool = True,
    defaults: Mapping[str, int] | None = None,
    max_model_len: int | None = None,
) -> Reader:
    """The reader of a family.

    Args:
        spans_of: How far its layers look back.
        grouped: Whether KV heads have to be stated; else there are as many as attention heads.
        defaults: Sizes that published configurations leave out. Source: transformers' configuration classes.
        max_model_len: The same of the longest request.
    """

    def read(fields: ConfigFields, factory: LayerFactory) -> Architecture:
        heads = Heads.of(fields.with_defaults(defaults or {}), grouped=grouped)
        spans = spans_of(fields, fields.num_layers())
        blocks = {span: {MODULE: factory.attention(heads, span)} for span in dict.fromkeys(spans)}
        return Architecture(blocks=[blocks[span] for span in spans], max_model_len=max_model_len)

    return read


def read_unknown(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """An architecture that is not in the registry, if its fields describe plain attention and nothing else.

    Any field that a plain decoder has no use for is a reason to refuse: the cache could be another one.

    Raises:
        UnsupportedModel: Names that field.
        InvalidRequest: Names the field that is wrong.
    """
    if _hints_at_more(fields.model_type.lower()):
        raise _not_plain(fields, "model_type")
    for name, value in fields.values.items():
        # Fields of later tools are written with nulls, zeros and false where they do not apply.
        if value and _hints_at_more(str(name).lower()):
            raise _not_plain(fields, name)
    architectures = fields.words("architectures")
    if architectures and not any(mark in name for name in architectures for mark in _GENERATIVE):
        raise _not_plain(fields, "architectures")
    if not fields.has(*NUM_KV_HEADS):
        for name, value in fields.values.items():
            if value and _hints_at_kv_heads(str(name).lower()):
                raise _not_plain(fields, name)
    has_window = fields.has("sliding_window") and fields.flag("use_sliding_window", default=True)
    if has_window and not fields.has("layer_types"):
        raise fields.missing("layer_types", "it says which layers have the sliding window")
    remark = f"model_type {fields.model_type!r} is not known: planned as plain attention, by its fields"
    return replace(attention_only(as_stated, grouped=False)(fields, factory), remarks=(remark,))


def _not_plain(fields: ConfigFields, name: object) -> UnsupportedModel:
    field = str(name)[:MAX_NAME_CHARACTERS]
    return UnsupportedModel(
        f"the architecture {fields.model_type!r} is not known, and {fields.place}.{field} says that it is "
        "not plain attention: give each rank's layers instead",
        {"model_type": fields.model_type, "field": field},
    )


_GENERATIVE: Final = ("CausalLM", "LMHead", "ConditionalGeneration")

_HINTS: Final = (
    # recurrent layers
    "mamba", "ssm", "conv", "state_size", "d_state", "d_inner", "recurrent", "rwkv", "wkv", "lru", "time_mix",
    "retention", "retnet", "hyena", "lstm", "gla", "linear_att", "expand_k", "expand_v", "value_dim",
    "attn_mode", "group_size", "rescale_every",
    "delta", "linear_attn", "linear_num", "linear_key", "linear_value", "lightning",
    # keys and values that are compressed, chosen from, or shared by layers
    "lora_rank", "compress", "kv_shar", "shared_kv", "share_kv", "cla_", "yoco", "blocksparse",
    "block_sparse", "v_head_dim", "sparse_att", "topk_att", "sink",
    # layers of several kinds
    "attn_layer", "attention_layer", "full_attn", "full_attention", "attn_type", "attention_type",
    "block_type", "layers_type", "block_config", "hybrid", "pattern", "swa", "global_", "local_att",
    "window_size", "chunk", "_every_n", "attn_config", "attention_config",
    # encoders
    "clip", "vision", "audio", "cross", "is_encoder_decoder", "encoder_layers", "bidirectional",
)  # fmt: skip
"""Parts of names of fields that say that a layer's cache is not, or not only, all tokens' keys and values."""


def _hints_at_more(name: str) -> bool:
    return name.startswith("index_") or any(hint in name for hint in _HINTS)


def _hints_at_kv_heads(name: str) -> bool:
    return "attention_groups" in name or (
        ("kv" in name or "key_value" in name) and ("head" in name or "group" in name)
    )
