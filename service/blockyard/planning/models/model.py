"""From a model's ``config.json`` to the layers of each rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layers import MAMBA_CACHE_MODES, Layer
from blockyard.planning.models.factory import LayerFactory
from blockyard.planning.models.fields import MAX_SIZE, ConfigFields
from blockyard.planning.models.heads import NUM_HEADS
from blockyard.planning.models.registry import reader_of
from blockyard.planning.models.storage import KvStorage
from blockyard.planning.models.text_part import DEFAULT_DTYPE, text_part
from blockyard.planning.parallel import Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLayers:
    """What a model keeps for its requests.

    Attributes:
        model_type: The architecture, of the text part in a model of several modalities.
        num_hidden_layers: Layers of the decoder, whatever they keep; draft layers are not counted.
        max_model_len: Tokens of the longest request, where the configuration states it.
        max_encoder_tokens: Tokens of the longest encoder input, for a model with an encoder.
        index_topk: Tokens that sparse attention reads, for a model with an indexer.
        remarks: What the configuration does not state, and how it was read; what engines may refuse.
        ranks: Each rank's layers by name, in the order of `Parallel`; names in the order of registration.
            Ranks of one stage share one dictionary.
    """

    model_type: str
    num_hidden_layers: int
    max_model_len: int | None
    max_encoder_tokens: int | None
    index_topk: int | None
    remarks: tuple[str, ...]
    ranks: tuple[dict[str, Layer], ...]


def layers_of_model(
    config: Mapping[str, Any],
    *,
    parallel: Parallel,
    block_size: int = 16,
    kv_cache_dtype: str = "auto",
    mamba_cache_mode: str = "none",
    num_speculative_blocks: int = 0,
) -> ModelLayers:
    """The layers that each rank of ``parallel`` keeps of the model that ``config`` describes.

    Args:
        config: A ``config.json`` of Hugging Face, as an object. Its fields are read, its code never is.
        parallel: How the model is spread.
        block_size: Tokens a block; a multiple of it where recurrent layers stand beside attention layers,
            whose pages have to be of one size.
        kv_cache_dtype: One of `KV_CACHE_DTYPES`.
        mamba_cache_mode: How recurrent states are kept, one of `MAMBA_CACHE_MODES`.
        num_speculative_blocks: Further states a request, for tokens that are not yet accepted.

    Raises:
        UnsupportedModel: The architecture is not known, or a field is missing that says what it keeps.
        InvalidRequest: Names the field at fault.
    """
    _check_arguments(block_size, mamba_cache_mode, num_speculative_blocks)
    fields, stated_dtype = text_part(config)
    model_dtype = stated_dtype or DEFAULT_DTYPE
    factory = LayerFactory(
        tensor=parallel.tensor,
        block_size=block_size,
        model_dtype=model_dtype,
        storage=KvStorage.of(kv_cache_dtype, model_dtype),
        mamba_cache_mode=mamba_cache_mode,
        num_speculative_blocks=num_speculative_blocks,
    )
    architecture = reader_of(fields)(fields, factory)
    num_layers = len(architecture.blocks)
    stages = [architecture.layers(numbers) for numbers in _stages(parallel, num_layers)]
    return ModelLayers(
        model_type=fields.model_type,
        num_hidden_layers=num_layers,
        max_model_len=fields.max_model_len() or architecture.max_model_len,
        max_encoder_tokens=architecture.max_encoder_tokens,
        index_topk=architecture.index_topk,
        remarks=(
            *architecture.remarks,
            *(
                []
                if stated_dtype
                else [f"the configuration states no element type: {model_dtype} is assumed"]
            ),
            *_head_remarks(fields, parallel.tensor),
        ),
        ranks=tuple(layers for layers in stages for _ in range(parallel.tensor)),
    )


def _head_remarks(fields: ConfigFields, tensor: int) -> list[str]:
    num_heads = fields.optional(*NUM_HEADS)
    if num_heads is None or num_heads % tensor == 0:
        return []
    return [f"{num_heads} attention heads do not divide over {tensor} tensor ranks: engines refuse that"]


def _stages(parallel: Parallel, num_layers: int) -> list[range]:
    if parallel.num_hidden_layers not in (None, num_layers):
        raise InvalidRequest.of("parallel.num_hidden_layers", f"the model has {num_layers}")
    if parallel.pipeline > num_layers:
        raise InvalidRequest.of("parallel.pipeline", f"the model has {num_layers} layers, fewer than stages")
    return parallel.stages(num_layers)


def _check_arguments(block_size: int, mamba_cache_mode: str, num_speculative_blocks: int) -> None:
    if not 1 <= block_size <= MAX_SIZE:
        raise InvalidRequest.of("block_size", f"must be from 1 to {MAX_SIZE}")
    if mamba_cache_mode not in MAMBA_CACHE_MODES:
        raise InvalidRequest.of("mamba_cache_mode", f"must be one of {', '.join(MAMBA_CACHE_MODES)}")
    if not 0 <= num_speculative_blocks <= MAX_SIZE:
        raise InvalidRequest.of("num_speculative_blocks", f"must be from 0 to {MAX_SIZE}")
