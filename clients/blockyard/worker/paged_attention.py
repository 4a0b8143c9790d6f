"""A reference of paged attention in plain torch: KV is written through slots and read through block tables.

    block table   [ 7 ][ 2 ][ 5 ]        block size 4, a sequence of 10 tokens
    positions      0-3  4-7  8,9         position 6 lies in block 2 at 6 % 4: slot 2 * 4 + 2 = 10

It is there to prove views and tables, and to say exactly what is read: positions that one of the queries may
see, and nothing else. Memory that was never written, or is another sequence's by now, is not touched.
"""

import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK
from blockyard.worker.layer_cache import LayerCache


def write_kv(cache: LayerCache, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Write tokens' keys and values into their slots.

    Args:
        cache: Of a layer whose states are keys and values.
        keys: ``[tokens, KV heads, head size]``, in the cache's dtype and on its device.
        values: ``[tokens, KV heads, head size of a value]``, likewise.
        slots: ``[tokens]``, an integer type: block id times tokens of a block, plus the place in the block.

    Raises:
        InvalidRequest: Shapes, dtypes or devices do not fit the cache; or a slot is beyond its blocks, or in
            the null block. Nothing is written then.
    """
    into_keys, into_values = cache.part("key"), cache.part("value")
    block_size = into_keys.shape[2]
    for name, given, into in (("keys", keys, into_keys), ("values", values, into_values)):
        expected = (len(slots), into.shape[1], into.shape[3])
        if given.shape != expected:
            raise InvalidRequest.of(name, f"must be {list(expected)}, and are {list(given.shape)}")
        if (given.dtype, given.device) != (into.dtype, into.device):
            raise InvalidRequest.of(name, f"must be {into.dtype} on {into.device}, as the cache is")
    places = slots.long()
    blocks, offsets = places // block_size, places % block_size
    _check_blocks(blocks, len(into_keys))
    into_keys[blocks, :, offsets] = keys
    into_values[blocks, :, offsets] = values


def paged_attention(
    queries: Tensor,
    cache: LayerCache,
    block_table: Tensor,
    num_tokens: int,
    *,
    sliding_window: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Causal attention of a sequence's last tokens to all that they may see, themselves included.

        0            num_tokens - len(queries)       num_tokens
        |-- written before --|-- the queries' tokens --|

    One query decodes; several are a chunk of a prompt. Their own keys and values are written before. It is
    computed in float32.

    Args:
        queries: ``[queries, heads, head size]``. The heads are a multiple of the KV heads; query head ``h``
            reads KV head ``h // (heads // KV heads)``.
        cache: Of a layer whose states are keys and values, on the queries' device.
        block_table: ``[entries]``, an integer type; entries behind the last token, or in front of the first
            that is seen, may be anything.
        num_tokens: Of the sequence, at least one and as many as the queries.
        sliding_window: Tokens that a token sees, itself included, at least 1; None for all before it.
        scale: Of the products of queries and keys; by default one over the root of the head size.

    Returns:
        ``[queries, heads, head size of a value]``, in the queries' dtype.

    Raises:
        InvalidRequest: Shapes do not fit, the table is too short, or an entry that is read is the null block
            or no block of the cache.
    """
    all_keys, all_values = cache.part("key"), cache.part("value")
    _check_shapes(queries, all_keys, block_table, num_tokens)
    if sliding_window is not None and sliding_window < 1:
        raise InvalidRequest.of("sliding_window", "must be at least 1: a token sees itself")
    num_blocks, num_kv_heads, block_size, head_size = all_keys.shape
    num_queries = len(queries)

    # The first query looks back the farthest.
    first_query = num_tokens - num_queries
    first_seen = 0 if sliding_window is None else max(0, first_query - sliding_window + 1)
    positions = torch.arange(first_seen, num_tokens, device=queries.device)
    blocks, offsets = block_table.long()[positions // block_size], positions % block_size
    _check_blocks(blocks, num_blocks)
    keys = all_keys[blocks, :, offsets].float()  # [seen, KV heads, head size]
    values = all_values[blocks, :, offsets].float()

    distances = torch.arange(first_query, num_tokens, device=queries.device)[:, None] - positions
    is_hidden = distances < 0
    if sliding_window is not None:
        is_hidden |= distances >= sliding_window
    grouped = queries.float().reshape(num_queries, num_kv_heads, -1, head_size)
    scores = torch.einsum("qhgd,khd->hgqk", grouped, keys) * (head_size**-0.5 if scale is None else scale)
    weights = scores.masked_fill(is_hidden, float("-inf")).softmax(-1)
    return torch.einsum("hgqk,khd->qhgd", weights, values).flatten(1, 2).to(queries.dtype)


def _check_shapes(queries: Tensor, all_keys: Tensor, block_table: Tensor, num_tokens: int) -> None:
    _, num_kv_heads, block_size, head_size = all_keys.shape
    if queries.dim() != 3 or queries.shape[2] != head_size or queries.shape[1] % num_kv_heads:
        raise InvalidRequest.of(
            "queries", f"must be [queries, a multiple of {num_kv_heads}, {head_size}], as the cache is"
        )
    if not 1 <= len(queries) <= num_tokens:
        raise InvalidRequest.of(
            "num_tokens", f"{len(queries)} queries are not the last of {num_tokens} tokens"
        )
    if num_tokens > len(block_table) * block_size:
        raise InvalidRequest.of(
            "block_table", f"{len(block_table)} blocks of {block_size} have no room for {num_tokens} tokens"
        )


def _check_blocks(blocks: Tensor, num_blocks: int) -> None:
    """Refuse what would wrap around, and the null block, which belongs to nobody."""
    wrong = blocks[(blocks <= NULL_BLOCK) | (blocks >= num_blocks)]
    if len(wrong):
        raise InvalidRequest.of(
            "block_ids", f"block {int(wrong[0])} has no tokens: those of the cache are 1 to {num_blocks - 1}"
        )
