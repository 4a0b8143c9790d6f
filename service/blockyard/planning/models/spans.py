"""Which layers of a model look back how far: the rules that configurations state or imply."""

from collections.abc import Callable
from typing import Final

from blockyard.planning.errors import UnsupportedModel
from blockyard.planning.models.fields import ConfigFields
from blockyard.planning.models.heads import FULL, Span

SpansOf = Callable[[ConfigFields, int], list[Span]]
"""The span of each of so many layers."""

_SLIDING: Final = "sliding_attention"
_CHUNKED: Final = "chunked_attention"
_FULL: Final = "full_attention"


def layer_types(fields: ConfigFields, num_layers: int, *names: str) -> tuple[str, ...] | None:
    """What the first of ``names`` to be given calls each layer; None if none is given.

    Raises:
        InvalidRequest: It does not name every layer once.
    """
    for name in names:
        types = fields.words(name)
        if types is not None:
            if len(types) != num_layers:
                raise fields.invalid(name, f"must have one entry a layer, {num_layers}")
            return types
    return None


def unknown_type(fields: ConfigFields, name: str, layer_type: str) -> UnsupportedModel:
    """The refusal of a layer that ``name`` calls by a name that is not known for this architecture."""
    return UnsupportedModel(
        f"{fields.place}.{name}: a model of type {fields.model_type!r} has no {layer_type[:64]!r} layers "
        "that are understood",
        {"model_type": fields.model_type, "field": name},
    )


def as_stated(fields: ConfigFields, num_layers: int) -> list[Span]:
    """By ``layer_types``; without them a window that is stated holds for all layers.

    ``use_sliding_window`` switches windows off. Source: vLLM's ``ModelConfig.get_sliding_window``.
    """
    switched_off = not fields.flag("use_sliding_window", default=True)
    types = layer_types(fields, num_layers, "layer_types")
    if types is not None:
        return _by_types(fields, types, switched_off=switched_off)
    return [FULL if switched_off else Span(fields.optional("sliding_window"))] * num_layers


def from_layer_on(fields: ConfigFields, num_layers: int) -> list[Span]:
    """Qwen: windows only with ``use_sliding_window``, and from layer ``max_window_layers`` on.

    Source: transformers' ``Qwen2Config``.
    """
    if not fields.flag("use_sliding_window", default=False):
        return [FULL] * num_layers
    if fields.has("layer_types"):
        return as_stated(fields, num_layers)
    window = Span(fields.positive("sliding_window"))
    first = fields.count("max_window_layers")
    if first is None:
        raise fields.missing("max_window_layers", "it says which layers have a window")
    return [FULL if number < first else window for number in range(num_layers)]


def every_nth_full(interval: int) -> SpansOf:
    """Windows, but for every ``interval``-th layer, unless the configuration states another pattern.

    Source: transformers' ``Gemma2Config``, ``Gemma3TextConfig``, ``GptOssConfig``, ``Cohere2Config``.
    """

    def spans(fields: ConfigFields, num_layers: int) -> list[Span]:
        if fields.has("layer_types"):
            return as_stated(fields, num_layers)
        every = fields.optional("sliding_window_pattern", "_sliding_window_pattern") or interval
        window = Span(fields.positive("sliding_window"))
        return [window if (number + 1) % every else FULL for number in range(num_layers)]

    return spans


def chunked_where_rotary(fields: ConfigFields, num_layers: int) -> list[Span]:
    """Llama 4: chunks, but for layers without rotary positions, by default every fourth.

    Source: transformers' ``Llama4TextConfig``; vLLM's ``Llama4Attention``.
    """
    chunk = Span(attention_chunk_size=fields.optional("attention_chunk_size"))
    rotary = fields.counts("no_rope_layers")
    if not rotary:  # an empty list stands for the default
        interval = fields.optional("no_rope_layer_interval") or 4
        rotary = tuple(int((number + 1) % interval != 0) for number in range(num_layers))
    if len(rotary) != num_layers:
        raise fields.invalid("no_rope_layers", f"must have one entry a layer, {num_layers}")
    return [chunk if has_rotary else FULL for has_rotary in rotary]


def _by_types(fields: ConfigFields, types: tuple[str, ...], *, switched_off: bool) -> list[Span]:
    known = {_FULL: FULL}
    if _SLIDING in types:
        known[_SLIDING] = FULL if switched_off else Span(fields.positive("sliding_window"))
    if _CHUNKED in types:
        known[_CHUNKED] = Span(attention_chunk_size=fields.positive("attention_chunk_size"))
    for layer_type in types:
        if layer_type not in known:
            raise unknown_type(fields, "layer_types", layer_type)
    return [known[layer_type] for layer_type in types]
