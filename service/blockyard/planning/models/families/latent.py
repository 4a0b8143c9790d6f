"""Multi-head latent attention (DeepSeek V2 and V3, Kimi K2), and sparse attention over it (DeepSeek V3.2)."""

from blockyard.planning.layers import MlaAttention
from blockyard.planning.models.architecture import Architecture, Block
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.families.attention_only import MODULE
from blockyard.planning.models.fields import ConfigFields


def latent_attention(fields: ConfigFields, factory: LayerFactory, *, sparse: bool = False) -> MlaAttention:
    """The layer of a model with ``kv_lora_rank`` latent elements a token."""
    return factory.latent(fields.positive("kv_lora_rank"), fields.positive("qk_rope_head_dim"), sparse=sparse)


def read_latent(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Latent attention in every layer; a model with an indexer says so."""
    if fields.has("index_topk", "index_head_dim"):
        return read_sparse_latent(fields, factory)
    block = {MODULE: latent_attention(fields, factory)}
    return Architecture(blocks=[block] * fields.num_layers())


def read_sparse_latent(fields: ConfigFields, factory: LayerFactory) -> Architecture:
    """Latent attention with an indexer of its own in every layer.

    Source: DeepSeek's inference code for V3.2; vLLM's ``DeepseekV32IndexerCache``.
    """
    block: Block = {
        MODULE: latent_attention(fields, factory, sparse=True),
        "self_attn.indexer.k_cache": factory.indexer(fields.positive("index_head_dim")),
    }
    return Architecture(blocks=[block] * fields.num_layers(), index_topk=fields.positive("index_topk"))
