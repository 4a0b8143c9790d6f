"""Attention over blocks is attention: beside torch's own, over contiguous tensors in double precision."""

import random
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layouts import Layout
from blockyard.worker import LayerCache
from blockyard.worker.paged_attention import paged_attention, write_kv
from planning.make_layers import make_full
from worker.small_plans import memory_of, small_plan

NUM_BLOCKS = 64
NUM_TOKENS = 37
CHUNKS = {
    "whole": [NUM_TOKENS],
    "one by one": [1] * NUM_TOKENS,
    "chunks, then decoding": [13, 3, 16, 1, 1, 1, 1, 1],
}


def drawn(num_kv_heads: int = 2, head_size: int = 8, head_size_v: int = 8) -> list[Tensor]:
    """Queries of four heads, keys and values."""
    generator = torch.Generator().manual_seed(num_kv_heads)
    shapes = (4, head_size), (num_kv_heads, head_size), (num_kv_heads, head_size_v)
    return [torch.randn(NUM_TOKENS, *shape, generator=generator) for shape in shapes]


def make_layer(layout: Layout = Layout.LBNHC, **sizes: Any) -> LayerCache:
    """The second of two layers, so that it does not begin with the memory. Nothing in it is a number."""
    layer = make_full(**{"block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float32", **sizes})
    plan = small_plan({"first": layer, "second": layer}, layout, num_blocks_override=NUM_BLOCKS)
    memory = memory_of(plan)
    memory.backing.fill_(0xFF)
    return memory.layers["second"]


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, window: int | None = None, scale: float | None = None
) -> Tensor:
    """Of the last tokens, over contiguous ``[tokens, heads, size]``."""
    places = torch.arange(len(keys))
    distances = places[len(keys) - len(queries) :, None] - places
    mask = (distances >= 0) & (distances < (window or len(keys)))
    q, k, v = (each.double().transpose(0, 1) for each in (queries, keys, values))
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    return mixed.transpose(0, 1)


def scattered_table(num_tokens: int, block_size: int) -> list[int]:
    return random.Random(num_tokens).sample(range(1, NUM_BLOCKS), -(-num_tokens // block_size))


def slots_of(table: list[int], begin: int, end: int, block_size: int) -> Tensor:
    return torch.tensor([table[p // block_size] * block_size + p % block_size for p in range(begin, end)])


def served(
    cache: LayerCache, queries: Tensor, keys: Tensor, values: Tensor, lengths: list[int], window: int | None
) -> Tensor:
    """Chunk by chunk; of a table only the entries that a query may see, null in front and none behind."""
    block_size = cache.part("key").shape[2]
    table = scattered_table(len(keys), block_size)
    outputs = []
    for begin, end in pairwise(accumulate(lengths, initial=0)):
        write_kv(cache, keys[begin:end], values[begin:end], slots_of(table, begin, end, block_size))
        first_seen = 0 if window is None else max(0, begin - window + 1)
        num_dropped = first_seen // block_size
        seen = [0] * num_dropped + table[num_dropped : -(-end // block_size)]
        outputs.append(
            paged_attention(queries[begin:end], cache, torch.tensor(seen), end, sliding_window=window)
        )
    return torch.cat(outputs)


@pytest.mark.parametrize("lengths", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("window", [None, 1, 6, 100])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("layout", Layout)
def test_it_equals_plain_attention(
    layout: Layout, block_size: int, num_kv_heads: int, window: int | None, lengths: list[int]
) -> None:
    cache = make_layer(layout, block_size=block_size, num_kv_heads=num_kv_heads)
    queries, keys, values = drawn(num_kv_heads)
    expected = plain_attention(queries, keys, values, window)
    torch.testing.assert_close(
        served(cache, queries, keys, values, lengths, window).double(), expected, rtol=0, atol=1e-5
    )


def test_values_may_be_of_another_size_than_keys() -> None:
    queries, keys, values = drawn(head_size_v=3)
    cache = make_layer(head_size_v=3)
    mixed = served(cache, queries, keys, values, [NUM_TOKENS], None)
    torch.testing.assert_close(mixed.double(), plain_attention(queries, keys, values), rtol=0, atol=1e-5)


def test_a_cache_in_half_precision_is_read_as_it_was_written() -> None:
    queries, keys, values = (each.bfloat16() for each in drawn())
    mixed = served(make_layer(dtype="bfloat16"), queries, keys, values, [NUM_TOKENS], None)
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed, plain_attention(queries, keys, values).bfloat16())


def test_products_are_scaled_as_asked() -> None:
    queries, keys, values = drawn()
    cache, table = make_layer(), scattered_table(NUM_TOKENS, 4)
    write_kv(cache, keys, values, slots_of(table, 0, NUM_TOKENS, 4))
    mixed = paged_attention(queries, cache, torch.tensor(table), NUM_TOKENS, scale=0.125)
    torch.testing.assert_close(
        mixed.double(), plain_attention(queries, keys, values, scale=0.125), rtol=0, atol=1e-5
    )


def test_a_write_touches_its_slots_alone() -> None:
    _, keys, values = drawn()
    cache = make_layer(Layout.BHLNC)
    write_kv(cache, keys[:2], values[:2], torch.tensor([9, 6]))
    written = [(2, 1), (1, 2)]
    for name, given in (("key", keys), ("value", values)):
        part = cache.part(name).clone()
        for place, (block, offset) in enumerate(written):
            assert torch.equal(part[block, :, offset], given[place])
            part[block, :, offset] = torch.nan
        assert part.isnan().all()


def test_a_swapped_block_of_another_sequence_changes_what_is_read() -> None:
    queries, keys, values = drawn()
    cache, table = make_layer(), scattered_table(NUM_TOKENS, 4)
    other = next(block for block in range(1, NUM_BLOCKS) if block not in table)
    write_kv(cache, keys, values, slots_of(table, 0, NUM_TOKENS, 4))
    write_kv(cache, values[:4], keys[:4], slots_of([other], 0, 4, 4))
    read = [
        paged_attention(queries[-1:], cache, torch.tensor([first, *table[1:]]), NUM_TOKENS)
        for first in (table[0], other)
    ]
    assert (read[0] - read[1]).abs().max() > 0.01


@pytest.mark.parametrize("slot", [-1, 0, 3, 4 * NUM_BLOCKS])
def test_a_slot_in_no_block_is_refused_and_nothing_is_written(slot: int) -> None:
    _, keys, values = drawn()
    cache = make_layer()
    with pytest.raises(InvalidRequest, match="has no tokens"):
        write_kv(cache, keys[:2], values[:2], torch.tensor([4, slot]))
    assert cache.part("key").isnan().all()
    assert cache.part("value").isnan().all()


def test_values_that_do_not_fit_are_refused_and_nothing_is_written() -> None:
    _, keys, values = drawn()
    cache = make_layer()
    for wrong, field in ((values[:, :1], "values"), (values.double(), "values"), (values[:3], "values")):
        with pytest.raises(InvalidRequest, match=field):
            write_kv(cache, keys[:4], wrong[:4], torch.arange(4, 8))
    assert cache.part("key").isnan().all()


@pytest.mark.parametrize("block", [-1, 0, NUM_BLOCKS])
def test_reading_a_block_that_has_no_tokens_is_refused(block: int) -> None:
    queries, _, _ = drawn()
    with pytest.raises(InvalidRequest, match=f"block {block} has no tokens"):
        paged_attention(queries[:1], make_layer(), torch.tensor([1, block]), 5)


@pytest.mark.parametrize(
    ("num_queries", "num_tokens", "window", "field"),
    [
        (1, 9, None, "block_table"),
        (3, 2, None, "num_tokens"),
        (0, 2, None, "num_tokens"),
        (1, 2, 0, "sliding_window"),
    ],
)
def test_counts_that_cannot_be_are_refused(
    num_queries: int, num_tokens: int, window: int | None, field: str
) -> None:
    queries, _, _ = drawn()
    with pytest.raises(InvalidRequest, match=field):
        paged_attention(
            queries[:num_queries], make_layer(), torch.tensor([1, 2]), num_tokens, sliding_window=window
        )


@pytest.mark.parametrize(
    "shape", [(1, 3, 8), (1, 4, 7), (4, 8)], ids=["uneven heads", "another head size", "no tokens"]
)
def test_queries_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match="queries"):
        paged_attention(torch.zeros(shape), make_layer(), torch.tensor([1, 2]), 5)
