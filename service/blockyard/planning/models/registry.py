"""Which reader understands which ``model_type``. A new family is one entry."""

from typing import Final

from blockyard.planning.errors import UnsupportedModel
from blockyard.planning.models.architecture import Reader
from blockyard.planning.models.families.attention_only import attention_only, read_unknown
from blockyard.planning.models.families.latent import read_latent, read_sparse_latent
from blockyard.planning.models.families.linear_attention import read_kimi_linear, read_qwen3_next
from blockyard.planning.models.families.mamba import (
    read_falcon_h1,
    read_granite_hybrid,
    read_jamba,
    read_mamba1,
    read_mamba2,
)
from blockyard.planning.models.families.whisper import read_whisper
from blockyard.planning.models.fields import ConfigFields
from blockyard.planning.models.spans import (
    as_stated,
    chunked_where_rotary,
    every_nth_full,
    from_layer_on,
)

_MULTI_HEAD: Final = attention_only(as_stated, grouped=False)
_GROUPED: Final = attention_only(as_stated)
_GLM: Final = attention_only(as_stated, defaults={"head_dim": 128})
_QWEN_2: Final = attention_only(from_layer_on)
_QWEN_3: Final = attention_only(from_layer_on, defaults={"head_dim": 128})
_GEMMA_3: Final = attention_only(
    every_nth_full(6),
    defaults={"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256},
    max_model_len=131_072,
)
_LLAMA_4: Final = attention_only(chunked_where_rotary)

READERS: Final[dict[str, Reader]] = {
    # full attention, or one window for all layers; multi-head unless KV heads are stated
    "bloom": _MULTI_HEAD,
    "chatglm": _MULTI_HEAD,
    "falcon": _MULTI_HEAD,
    "gpt2": _MULTI_HEAD,
    "gpt_neox": _MULTI_HEAD,
    "gptj": _MULTI_HEAD,
    "granite": _MULTI_HEAD,
    "granitemoe": _MULTI_HEAD,
    "granitemoeshared": _MULTI_HEAD,
    "llama": _MULTI_HEAD,
    "olmo": _MULTI_HEAD,
    "olmo2": _MULTI_HEAD,
    "opt": _MULTI_HEAD,
    "phi": _MULTI_HEAD,
    "phi3": _MULTI_HEAD,
    # the same, and KV heads have to be stated
    "gemma": attention_only(as_stated, defaults={"head_dim": 256}),
    "glm": _GLM,
    "glm4": _GLM,
    "glm4_moe": _GROUPED,
    "mistral": _GROUPED,
    "mixtral": _GROUPED,
    "phimoe": _GROUPED,
    "stablelm": _GROUPED,
    "starcoder2": _GROUPED,
    # windows from some layer on
    "qwen2": _QWEN_2,
    "qwen2_5_vl": _QWEN_2,
    "qwen2_5_vl_text": _QWEN_2,
    "qwen2_moe": _QWEN_2,
    "qwen2_vl": _QWEN_2,
    "qwen2_vl_text": _QWEN_2,
    "qwen3": _QWEN_3,
    "qwen3_moe": _QWEN_2,
    "qwen3_vl_moe_text": _QWEN_2,
    "qwen3_vl_text": _QWEN_3,
    # windows and full attention by turns
    "cohere2": attention_only(every_nth_full(4), grouped=False),
    "gemma2": attention_only(every_nth_full(2), defaults={"head_dim": 256}),
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "gpt_oss": attention_only(every_nth_full(2), defaults={"head_dim": 64}),
    # chunks and full attention by turns
    "llama4": _LLAMA_4,
    "llama4_text": _LLAMA_4,
    # latent vectors
    "deepseek_v2": read_latent,
    "deepseek_v3": read_latent,
    "deepseek_v32": read_sparse_latent,
    "glm4_moe_lite": read_latent,
    "kimi_k2": read_latent,
    # recurrent states
    "falcon_h1": read_falcon_h1,
    "falcon_mamba": read_mamba1,
    "granitemoehybrid": read_granite_hybrid,
    "jamba": read_jamba,
    "kimi_linear": read_kimi_linear,
    "mamba": read_mamba1,
    "mamba2": read_mamba2,
    "qwen3_5_moe_text": read_qwen3_next,
    "qwen3_5_text": read_qwen3_next,
    "qwen3_next": read_qwen3_next,
    # an encoder's output
    "whisper": read_whisper,
}
"""By ``model_type``."""

ENCODERS: Final = frozenset(
    {
        "albert",
        "bert",
        "camembert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "modernbert",
        "mpnet",
        "nomic_bert",
        "roberta",
        "xlm-roberta",
    }
)
"""Architectures that compute all tokens at once: they keep nothing, so there is nothing to plan."""


def reader_of(fields: ConfigFields) -> Reader:
    """The reader for the architecture that ``fields`` name; plain attention by its fields if it is not known.

    Raises:
        UnsupportedModel: It is an encoder.
    """
    if fields.model_type in ENCODERS:
        raise UnsupportedModel(
            f"{fields.place}.model_type: {fields.model_type!r} is an encoder and keeps nothing between steps",
            {"model_type": fields.model_type, "field": "model_type"},
        )
    return READERS.get(fields.model_type, read_unknown)
