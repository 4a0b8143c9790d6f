"""Whisper: a decoder that also looks at an encoder's output. The encoder itself keeps nothing."""

from blockyard.planning.models.architecture import Architecture, Block
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.families.attention_only import MODULE
from blockyard.planning.models.fields import ConfigFields
from blockyard.planning.models.heads import Heads


def read_whisper(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Self-attention and cross-attention in every decoder layer.

    ``num_hidden_layers`` counts the encoder's layers, of which distilled models have more.
    """
    num_heads, width = fields.positive("decoder_attention_heads"), fields.positive("d_model")
    if width % num_heads:
        raise fields.invalid("d_model", f"must be a multiple of the attention heads, {num_heads}")
    heads = Heads(num_kv_heads=num_heads, head_size=width // num_heads)
    block: Block = {
        MODULE: factory.attention(heads),
        "encoder_attn.attn": factory.cross_attention(heads),
    }
    return Architecture(
        blocks=[block] * fields.bounded_layers("decoder_layers"),
        prefix="model.decoder.layers",
        max_encoder_tokens=fields.positive("max_source_positions"),
    )
