"""Linear attention beside softmax attention: Qwen3-Next and its successors, Kimi Linear."""

from typing import Final

from blockyard.planning.models.architecture import Architecture, Block, with_common_pages
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.families.attention_only import MODULE
from blockyard.planning.models.families.latent import latent_attention
from blockyard.planning.models.fields import ConfigFields
from blockyard.planning.models.heads import Heads
from blockyard.planning.models.spans import layer_types, unknown_type
from blockyard.planning.models.state_fields import conv_kernel, state_dtype
from blockyard.planning.models.states import DeltaNetSizes, KimiDeltaSizes

LINEAR_MODULE: Final = "linear_attn"


def read_qwen3_next(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Gated delta nets, with full attention in every fourth layer unless the configuration says otherwise.

    Source: transformers' ``Qwen3NextConfig``.
    """
    num_layers = fields.num_layers()
    types = layer_types(fields, num_layers, "layer_types")
    if types is None:
        interval = fields.optional("full_attention_interval") or 4
        types = tuple(
            "linear_attention" if (number + 1) % interval else "full_attention"
            for number in range(num_layers)
        )
    sizes = DeltaNetSizes(
        num_key_heads=fields.positive("linear_num_key_heads"),
        key_size=fields.positive("linear_key_head_dim"),
        num_value_heads=fields.positive("linear_num_value_heads"),
        value_size=fields.positive("linear_value_head_dim"),
        conv_kernel=conv_kernel(fields, "linear_conv_kernel_dim"),
        dtype=state_dtype(fields),
    )
    blocks: dict[str, Block] = {
        "full_attention": {MODULE: factory.attention(Heads.of(fields.with_defaults({"head_dim": 256})))},
        "linear_attention": {LINEAR_MODULE: factory.recurrent(sizes.state(factory))},
    }
    for layer_type in types:
        if layer_type not in blocks:
            raise unknown_type(fields, "layer_types", layer_type)
    return Architecture(blocks=with_common_pages([blocks[layer_type] for layer_type in types]))


def read_kimi_linear(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Delta attention, with latent attention in the layers of ``full_attn_layers``, which counts from 1."""
    num_layers = fields.num_layers()
    linear = fields.part("linear_attn_config")
    if linear is None:
        raise fields.missing(
            "linear_attn_config", "it says which layers are linear attention, and their sizes"
        )
    full, delta = linear.counts("full_attn_layers"), linear.counts("kda_layers")
    if full is None:
        raise linear.missing("full_attn_layers")
    if delta is None:
        raise linear.missing("kda_layers")
    if sorted(full + delta) != list(range(1, num_layers + 1)):
        raise linear.invalid("kda_layers", f"with full_attn_layers, must name each of 1 to {num_layers} once")
    sizes = KimiDeltaSizes(
        num_heads=linear.positive("num_heads"),
        head_size=linear.positive("head_dim"),
        conv_kernel=conv_kernel(linear, "short_conv_kernel_size"),
    )
    attention: Block = {MODULE: latent_attention(fields, factory)}
    recurrent: Block = {LINEAR_MODULE: factory.recurrent(sizes.state(factory))}
    latent_layers = set(full)
    return Architecture(
        blocks=with_common_pages(
            [attention if number in latent_layers else recurrent for number in range(1, num_layers + 1)]
        )
    )
