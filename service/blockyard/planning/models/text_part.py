"""The part of a configuration that describes the language model, and what of the whole holds for it.

{"model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {...},
 "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 62, ...}}
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import UnsupportedModel
from blockyard.planning.models.fields import MAX_NAME_CHARACTERS, ConfigFields

WRAPPERS: Final = ("text_config", "language_config", "llm_config", "thinker_config")
"""Objects that hold the language model inside a model of several modalities."""

MAX_DEPTH: Final = 4

MODEL_DTYPES: Final = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
}
DEFAULT_DTYPE: Final = "bfloat16"
"""Where none is stated, engines look into the weights, and serve even those in float32 so by default.

Source: vLLM's ``_resolve_auto_dtype``.
"""


def text_part(config: Mapping[str, Any]) -> tuple[ConfigFields, str | None]:
    """The language model's fields, and the element type of the whole model if one is stated.

    The type stands beside the language model or around it, and is taken at its word. Where neither states one
    (gpt-oss, GPT-2) it is `DEFAULT_DTYPE`.

    Raises:
        UnsupportedModel: No architecture is named.
        InvalidRequest: Names the field at fault.
    """
    if not isinstance(config, Mapping):
        raise InvalidRequest.of("hf_config", "must be an object")
    part = ConfigFields(config, _model_type(config, "hf_config", None) or "")
    dtype = model_dtype(part, "torch_dtype", "dtype")
    for _ in range(MAX_DEPTH):
        inner = next((found for found in map(part.part, WRAPPERS) if found is not None), None)
        if inner is None:
            break
        part = replace(inner, model_type=_model_type(inner.values, inner.place, part.model_type) or "")
        dtype = model_dtype(part, "torch_dtype", "dtype") or dtype
    if not part.model_type:
        raise UnsupportedModel(
            f"{part.place}.model_type is missing: it names the architecture",
            {"model_type": None, "field": "model_type"},
        )
    return part, dtype


def model_dtype(fields: ConfigFields, *names: str) -> str | None:
    """The element type that the first of ``names`` to be given states; None if none is given.

    Raises:
        InvalidRequest: It is no type that a model computes in.
    """
    for name in names:
        value = fields.values.get(name)
        if value is None:
            continue
        dtype = MODEL_DTYPES.get(value.removeprefix("torch.")) if isinstance(value, str) else None
        if dtype is None:
            raise fields.invalid(name, f"must be one of {', '.join(MODEL_DTYPES)}")
        return dtype
    return None


def _model_type(values: Mapping[str, Any], place: str, default: str | None) -> str | None:
    value = values.get("model_type")
    if value is None:
        return default
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARACTERS:
        raise InvalidRequest.of(
            f"{place}.model_type", f"must be a name of 1 to {MAX_NAME_CHARACTERS} characters"
        )
    return value
