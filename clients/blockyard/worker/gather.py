"""A sequence's keys and values in the order of its tokens, for people and tests to look at."""

from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK
from blockyard.planning.layers import Mamba
from blockyard.worker.block_ids import BlockIds, checked_sources, id_tensor
from blockyard.worker.layer_cache import LayerCache


def gather_tokens(cache: LayerCache, block_ids: BlockIds, num_tokens: int, *, block_size: int) -> Tensor:
    """A copy of the states of the first ``num_tokens`` tokens of a sequence.

    Args:
        cache: Of an attention layer with one state a token.
        block_ids: The sequence's block table; tokens of the null block read as zeros.
        num_tokens: At most what the blocks hold.
        block_size: Tokens an entry of the block table stands for.

    Returns:
        ``[num_tokens, heads, elements]`` in the layer's dtype, on its device.

    Raises:
        InvalidRequest: The layer is of another sort, an id is out of range, or the blocks are too few.
    """
    num_blocks, num_heads, num_states, state_bytes = cache.view.shape
    is_recurrent = cache.view.kind == Mamba.kind
    if is_recurrent or num_states != block_size:
        what = "a recurrent state" if is_recurrent else f"{num_states} states for {block_size} tokens"
        raise InvalidRequest.of("layer", f"a block of {cache.name!r} keeps {what}, not one state a token")
    if state_bytes % cache.dtype.itemsize:
        raise InvalidRequest.of("layer", f"{state_bytes} bytes are no whole number of {cache.dtype}")
    table = checked_sources(block_ids, num_blocks)
    if not 0 <= num_tokens <= len(table) * block_size:
        raise InvalidRequest.of(
            "num_tokens", f"is {num_tokens}: {len(table)} blocks hold {len(table) * block_size}"
        )
    ids = id_tensor(table, cache.bytes.device)
    # As words, since not every dtype can be indexed.
    blocks = cache.words.index_select(0, ids)
    blocks[ids == NULL_BLOCK] = 0
    tokens = blocks.permute(0, 2, 1, 3).reshape(-1, num_heads, blocks.shape[-1])
    return tokens[:num_tokens].contiguous().view(cache.dtype)
