"""Mamba and Mamba-2, alone (Mamba, Mamba2) and with attention (Jamba, Granite 4, Falcon-H1)."""

from typing import Final

from blockyard.planning.models.architecture import Architecture, Block, with_common_pages
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.families.attention_only import MODULE
from blockyard.planning.models.fields import ConfigFields
from blockyard.planning.models.heads import Heads
from blockyard.planning.models.spans import layer_types, unknown_type
from blockyard.planning.models.state_fields import HYBRID, PURE, conv_kernel, mamba2_sizes, state_dtype
from blockyard.planning.models.states import Mamba1Sizes

MIXER: Final = "mixer"


def read_mamba1(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Mamba in every layer."""
    channels = fields.optional("intermediate_size") or fields.positive("expand") * fields.positive(
        "hidden_size"
    )
    sizes = Mamba1Sizes(
        num_channels=channels,
        state_size=fields.positive("state_size"),
        conv_kernel=conv_kernel(fields, "conv_kernel"),
        dtype=state_dtype(fields),
    )
    block = {MIXER: factory.recurrent(sizes.state(factory))}
    return Architecture(blocks=[block] * fields.num_layers())


def read_mamba2(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Mamba-2 in every layer."""
    sizes = mamba2_sizes(fields, PURE, fields.positive("expand") * fields.positive("hidden_size"))
    block = {MIXER: factory.recurrent(sizes.state(factory))}
    return Architecture(blocks=[block] * fields.num_layers())


def read_jamba(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Mamba, with attention in every ``attn_layer_period``-th layer from ``attn_layer_offset`` on."""
    period, offset = fields.positive("attn_layer_period"), fields.count("attn_layer_offset")
    if offset is None:
        raise fields.missing("attn_layer_offset", "it says which layers are attention")
    if offset >= period:
        raise fields.invalid("attn_layer_offset", f"must be less than attn_layer_period, {period}")
    sizes = Mamba1Sizes(
        num_channels=fields.positive("mamba_expand") * fields.positive("hidden_size"),
        state_size=fields.positive("mamba_d_state"),
        conv_kernel=conv_kernel(fields, "mamba_d_conv"),
        dtype=state_dtype(fields),
    )
    attention = {MODULE: factory.attention(Heads.of(fields))}
    recurrent = {MIXER: factory.recurrent(sizes.state(factory))}
    return Architecture(
        blocks=with_common_pages(
            [attention if number % period == offset else recurrent for number in range(fields.num_layers())]
        )
    )


def read_granite_hybrid(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Mamba-2 or attention, as ``layer_types`` says of each layer; the dense models have attention alone."""
    names = ("layer_types", "layers_block_type")
    types = layer_types(fields, fields.num_layers(), *names)
    if types is None:
        raise fields.missing("layer_types", "it says which layers are attention")
    blocks: dict[str, Block] = {}
    for layer_type in dict.fromkeys(types):
        match layer_type:
            case "attention" | "full_attention":
                blocks[layer_type] = {MODULE: factory.attention(Heads.of(fields, grouped=False))}
            case "mamba":
                channels = fields.positive("mamba_expand") * fields.positive("hidden_size")
                sizes = mamba2_sizes(fields, HYBRID, channels)
                blocks[layer_type] = {MIXER: factory.recurrent(sizes.state(factory))}
            case _:
                raise unknown_type(fields, next(filter(fields.has, names)), layer_type)
    return Architecture(blocks=with_common_pages([blocks[layer_type] for layer_type in types]))


def read_falcon_h1(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Attention and Mamba-2 side by side in every layer."""
    channels = fields.optional("mamba_d_ssm")
    if channels is None:
        channels = fields.positive("mamba_expand") * fields.positive("hidden_size")
    block: Block = {
        MODULE: factory.attention(Heads.of(fields)),
        MIXER: factory.recurrent(mamba2_sizes(fields, HYBRID, channels).state(factory)),
    }
    return Architecture(blocks=with_common_pages([block] * fields.num_layers()))
