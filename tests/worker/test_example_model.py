"""The example's models, without a server: blocks anywhere, in every layout, chunk by chunk."""

import random
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor

from blockyard.planning.layouts import Layout
from blockyard.planning.memory_map import memory_map
from blockyard.planning.planner import plan
from blockyard.server.plan_schemas import PlanBody
from blockyard.worker import BlockMemory
from examples.two_processes.contiguous_cache import ContiguousCache
from examples.two_processes.faults import with_swapped_blocks
from examples.two_processes.messages import Batch, Chunk
from examples.two_processes.model import Transformer
from examples.two_processes.model_config import MODELS, LayerKind
from examples.two_processes.settings import Settings
from examples.two_processes.worker_process import block_tables, compute, poison

NUM_BLOCKS = 100
LENGTHS = [13, 3, 16, 1, 1, 9]
CASES = [
    (model, layout)
    for model, config in MODELS.items()
    for layout in Layout
    # Pages of states have padding, which only layouts with whole pages have a place for.
    if LayerKind.LINEAR not in config.layers or layout.keeps_pages_whole
]


def make_memory(settings: Settings) -> BlockMemory:
    body = settings.model_config.plan(
        num_blocks=NUM_BLOCKS, layout=settings.layout, max_model_len=64, max_in_flight_tokens=32
    )
    memory = BlockMemory(memory_map(plan(PlanBody(**body).request()), 0))
    poison(memory)
    return memory


def make_tables(memory: BlockMemory, num_tokens: int, numbers: list[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(numbers.pop() for _ in range(-(-num_tokens // group.block_size))) for group in memory.map.groups
    )


def logits_of(model: Transformer, tokens: list[int]) -> Tensor:
    """Of the next token behind each of LENGTHS, all computed at once on a contiguous cache."""
    hidden = model.forward(torch.tensor(tokens), torch.arange(len(tokens)), ContiguousCache())
    return model.logits(hidden)[[end - 1 for end in accumulate(LENGTHS)]]


@pytest.mark.parametrize(("model_name", "layout"), CASES)
def test_chunks_in_scattered_blocks_make_the_logits_of_the_whole(model_name: str, layout: Layout) -> None:
    settings = Settings(model=model_name, layout=layout)
    model, memory = Transformer(settings.model_config, seed=1), make_memory(settings)
    tables = block_tables(memory, settings)
    draw = random.Random(0)
    numbers = draw.sample(range(1, NUM_BLOCKS), NUM_BLOCKS - 1)
    prompts = [[draw.randrange(128) for _ in range(sum(LENGTHS))] for _ in range(2)]
    blocks = [make_tables(memory, sum(LENGTHS), numbers) for _ in prompts]
    served: list[list[tuple[float, ...]]] = [[], []]
    for begin, end in pairwise(accumulate(LENGTHS, initial=0)):
        chunks = tuple(
            Chunk(
                token_ids=tuple(prompt[begin:end]),
                num_computed_tokens=begin,
                block_tables=own,
                is_sampled=True,
            )
            for prompt, own in zip(prompts, blocks, strict=True)
        )
        computed = compute(model, memory, tables, Batch(epoch=1, copies=(), chunks=chunks))
        for rows, sampled in zip(served, computed.sampled, strict=True):
            assert sampled is not None
            assert sampled.token_id == max(range(128), key=sampled.logits.__getitem__)
            rows.append(sampled.logits)
    for prompt, rows in zip(prompts, served, strict=True):
        torch.testing.assert_close(torch.tensor(rows), logits_of(model, prompt), rtol=0, atol=1e-4)


def test_memory_that_nobody_wrote_is_not_a_number() -> None:
    memory = make_memory(Settings(model="hybrid"))
    for cache in memory.layers.values():
        for part in cache.view.parts:
            assert cache.part(part.name).isnan().all()


def make_chunk(table: tuple[int, ...], num_computed_tokens: int) -> Chunk:
    return Chunk(
        token_ids=(1,),
        num_computed_tokens=num_computed_tokens,
        block_tables=((0,), table),
        is_sampled=True,
    )


def test_the_planted_fault_swaps_first_blocks_that_are_read_and_not_written() -> None:
    writes, one, shares, other = (
        make_chunk(table, num_computed)
        for table, num_computed in (((1,), 3), ((2, 3), 4), ((2, 4), 7), ((5, 6), 5))
    )
    assert with_swapped_blocks((writes, one, shares, other), 1, 4) == (
        writes,
        replace(one, block_tables=((0,), (5, 3))),
        shares,
        replace(other, block_tables=((0,), (2, 6))),
    )
    assert with_swapped_blocks((writes, one, shares), 1, 4) is None
