"""A sequence's keys and values in the order of its tokens."""

from typing import Any

import pytest
import torch

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layers import Layer
from blockyard.planning.layouts import Layout
from planning.make_layers import make_full
from worker.small_plans import (
    SMALL,
    fill_randomly,
    make_kind,
    memory_of,
    small_plan,
    sparse_plan,
    uniform_plan,
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fnuz", "uint8"])
@pytest.mark.parametrize("layout", Layout)
def test_tokens_are_gathered_in_order(layout: Layout, dtype: str) -> None:
    memory = memory_of(uniform_plan(layout, dtype=dtype))
    fill_randomly(memory)
    table = [5, 1, 4]
    content = memory.layers["layer.1"].content
    gathered = memory.gather("layer.1", table, 10)
    assert gathered.shape == (10, 3, 8)
    assert gathered.dtype is content.dtype
    for token in range(10):
        expected = content[table[token // 4], :, token % 4]
        assert torch.equal(gathered[token].view(torch.uint8), expected.contiguous().view(torch.uint8))


def test_tokens_of_dropped_blocks_are_zeros() -> None:
    memory = memory_of(uniform_plan())
    memory.layers["layer.0"].content.fill_(1)
    gathered = memory.gather("layer.0", [0, 3], 8)
    assert bool((gathered[:4] == 0).all())
    assert bool((gathered[4:] == 1).all())


def test_what_is_gathered_is_a_copy() -> None:
    memory = memory_of(uniform_plan())
    memory.gather("layer.0", [1], 4).fill_(1)
    assert not memory.backing.any()


def test_no_tokens_can_be_gathered() -> None:
    assert memory_of(uniform_plan()).gather("layer.0", [], 0).shape == (0, 3, 8)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (make_kind("mamba"), "keeps a recurrent state"),
        (make_kind("mamba", block_size=1), "keeps a recurrent state"),
        (make_kind("mla_attention", tokens_per_state=2), "keeps 2 states for 4 tokens"),
        (make_full(**SMALL, state_content_bytes=7), "no whole number of torch.bfloat16"),
    ],
)
def test_layers_that_keep_something_else_are_refused(layer: Layer, message: str) -> None:
    memory = memory_of(small_plan({"layer": layer}))
    with pytest.raises(InvalidRequest, match=message):
        memory.gather("layer", [1], 1)


@pytest.mark.parametrize(
    ("layer", "block_ids", "num_tokens", "message"),
    [
        ("layer.9", [1], 1, "no 'layer.9' on this rank"),
        ("layer.0", [8], 1, "block 8 is out of range"),
        ("layer.0", [1.0], 1, "1.0 is no block id"),
        ("layer.0", [1], 5, "1 blocks hold 4"),
        ("layer.0", [1], -1, "is -1"),
    ],
)
def test_what_is_not_there_is_refused(
    layer: str, block_ids: list[Any], num_tokens: int, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        memory_of(uniform_plan()).gather(layer, block_ids, num_tokens)


def test_pages_on_the_host_are_gathered_by_the_hosts_ids() -> None:
    memory = memory_of(sparse_plan())
    fill_randomly(memory)
    cache = memory.layers["layer.1.mla"]
    assert cache.view.host_resident
    assert torch.equal(memory.gather("layer.1.mla", [2], 4).view(torch.uint8), cache.bytes[2].transpose(0, 1))
