"""Samples of one prompt that part read what they wrote themselves, beside tensors that share nothing."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from blockyard.client import Client, Scheduler
from blockyard.worker import BlockMemory, LayerCache
from blockyard.worker.paged_attention import paged_attention, write_kv
from planning.make_layers import make_full
from worker.small_plans import memory_of, small_plan

BLOCK, NUM_BLOCKS = 4, 48
PROMPT = 10


@dataclass
class Sample:
    """Its keys and values, ``[tokens, 1, 8]``, in tensors of its own."""

    keys: Tensor
    values: Tensor

    def longer(self, generator: torch.Generator) -> "Sample":
        more = torch.randn(2, 1, 1, 8, generator=generator)
        return Sample(torch.cat((self.keys, more[0])), torch.cat((self.values, more[1])))


def make_memory() -> tuple[BlockMemory, LayerCache]:
    layer = make_full(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype="float32")
    memory = memory_of(small_plan({"layer": layer}, num_blocks_override=NUM_BLOCKS))
    memory.backing.fill_(0xFF)  # nothing in it is a number
    return memory, memory.layers["layer"]


def write(cache: LayerCache, table: list[int], sample: Sample, begin: int) -> None:
    slots = [table[at // BLOCK] * BLOCK + at % BLOCK for at in range(begin, len(sample.keys))]
    write_kv(cache, sample.keys[begin:], sample.values[begin:], torch.tensor(slots))


def assert_reads(cache: LayerCache, table: list[int], sample: Sample) -> None:
    query = torch.ones(1, 1, 8)
    scores = (sample.keys[:, 0].double() @ query[0, 0].double()) / 8**0.5
    expected = torch.softmax(scores, 0) @ sample.values[:, 0].double()
    found = paged_attention(query, cache, torch.tensor(table), len(sample.keys))
    torch.testing.assert_close(found[0, 0].double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_samples_that_part_read_their_own_keys_and_values(client: Client, name: str, seed: int) -> None:
    drawn, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    memory, cache = make_memory()
    pool = client.create_pool(name, num_blocks=NUM_BLOCKS, block_size=BLOCK)
    with pool.lease("engine") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("0", range(PROMPT))
        scheduler.step()
        samples = {"0": Sample(*torch.randn(2, PROMPT, 1, 8, generator=generator))}
        write(cache, list(scheduler.block_ids("0")[0]), samples["0"], 0)
        scheduler.computed("0", PROMPT)
        num_made, num_copies = 1, 0
        for _ in range(20):
            if len(samples) < 5:
                parent = drawn.choice(sorted(samples))
                forks = [str(num_made + more) for more in range(drawn.randrange(1, 3))]
                memory.copy(scheduler.fork(parent, forks).copies)  # type: ignore[arg-type]
                samples |= dict.fromkeys(forks, samples[parent])
                num_made += len(forks)
            else:
                ended = drawn.choice(sorted(samples))
                scheduler.finish(ended)
                del samples[ended]
            going_on = [each for each in sorted(samples) if drawn.random() < 0.7]
            for each in going_on:
                scheduler.append(each, [drawn.randrange(99)])
            result = scheduler.step(dict.fromkeys(going_on))
            memory.copy(result.copies)  # type: ignore[arg-type]
            num_copies += len(result.copies)
            for each in going_on:
                num_before = len(samples[each].keys)
                samples[each] = samples[each].longer(generator)
                write(cache, list(result.scheduled[each].block_ids[0]), samples[each], num_before)
                scheduler.computed(each, num_before + 1)
            for each, sample in samples.items():
                assert_reads(cache, list(scheduler.block_ids(each)[0]), sample)
        assert num_copies > 5
