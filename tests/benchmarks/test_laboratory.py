"""The laboratory's workloads are what their names say, and no policy does better than the optimum."""

import json
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from benchmarks.laboratory.adverse import LOOP_DOCUMENTS
from benchmarks.laboratory.cell import measure
from benchmarks.laboratory.curves import save_curves
from benchmarks.laboratory.draw import Draw
from benchmarks.laboratory.optimum import optimal_hits
from benchmarks.laboratory.prompt import NOTHING, Writer
from benchmarks.laboratory.table import markdown
from benchmarks.laboratory.workload import Workload
from benchmarks.laboratory.workloads import KINDS, recorded_trace
from blockyard.core.config import Eviction

BLOCK_SIZE = 16
NUM_REQUESTS = 120
OPTIMAL_RATIOS = {1_000: 0.1907, 3_000: 0.2945, 10_000: 0.3664}
TRACE = recorded_trace()


@cache
def make(kind: str, num_requests: int = NUM_REQUESTS) -> Workload:
    return KINDS[kind].make(num_requests=num_requests)


def blocks_of(workload: Workload) -> list[bytes]:
    return [each for request in workload.requests for each in request.block_hashes]


def best_of_all_choices(blocks: tuple[int, ...], capacity: int) -> int:
    """Hits of the best among all ways to keep blocks: what is kept, by the hits so far."""
    best = {frozenset[int](): 0}
    for block in blocks:
        after: dict[frozenset[int], int] = {}
        for kept, num_hits in best.items():
            known = kept | {block}
            choices = {kept, *(known - {gone} for gone in known)} | {known}
            for choice in choices:
                if len(choice) <= capacity:
                    after[choice] = max(after.get(choice, 0), num_hits + (block in kept))
        best = after
    return max(best.values())


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_give_equal_workloads_and_others_others(kind: str) -> None:
    again, other = (KINDS[kind].make(seed, NUM_REQUESTS) for seed in (0, 1))
    assert make(kind) == again
    assert make(kind).requests != other.requests


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_has_a_hash_for_each_of_its_full_blocks(kind: str) -> None:
    for request in make(kind).requests:
        assert len(request.block_hashes) == request.num_tokens // KINDS[kind].block_size
        assert len(set(request.block_hashes)) == len(request.block_hashes)


@pytest.mark.parametrize("kind", KINDS)
def test_only_where_texts_are_shared_is_anything_found(kind: str) -> None:
    blocks = blocks_of(make(kind))
    assert (len(set(blocks)) < len(blocks)) == (kind != "one_shot")


def test_a_loop_comes_back_to_a_block_after_all_others() -> None:
    blocks = blocks_of(make("loop", 4 * LOOP_DOCUMENTS))
    shared = {block for block, times in Counter(blocks).items() if times > 1}
    order = [each for each in blocks if each in shared]
    assert 1_500 < len(shared) < 2_500
    assert order == order[: len(shared)] * 4


def test_a_text_is_the_same_behind_the_same_texts_only() -> None:
    writer = Writer(BLOCK_SIZE)
    first, second, long = (writer.piece(size) for size in (40, 24, 64))
    behind_first = writer.join(NOTHING, first, long)
    assert writer.join(writer.join(NOTHING, first), long) == behind_first
    assert behind_first.blocks[:2] == writer.join(NOTHING, first, second).blocks[:2]
    assert set(behind_first.blocks).isdisjoint(writer.join(NOTHING, second, long).blocks)


def test_the_optimum_is_the_best_of_all_choices() -> None:
    draw = Draw(0)
    drawn = [tuple(draw.count(0, 5) for _ in range(12)) for _ in range(40)]
    for blocks, capacity in product([*product(range(3), repeat=5), *drawn], (1, 2, 3)):
        prompts = [blocks[:4], blocks[4:]]
        assert optimal_hits(prompts, capacity) == best_of_all_choices(blocks, capacity)


@pytest.mark.skipif(TRACE is None, reason="BLOCKYARD_TRACE names no trace")
def test_the_optimum_of_the_recorded_trace_is_that_which_others_found() -> None:
    """For them, partial blocks count as blocks too."""
    assert TRACE is not None
    prompts = [json.loads(line)["hash_ids"] for line in TRACE.read_text().splitlines()]
    num_blocks = sum(map(len, prompts))
    ratios = {each: round(optimal_hits(prompts, each) / num_blocks, 4) for each in OPTIMAL_RATIOS}
    assert ratios == OPTIMAL_RATIOS


@pytest.mark.parametrize("kind", KINDS)
def test_no_policy_is_better_than_the_optimum(kind: str) -> None:
    cell = measure(make(kind), 300)
    assert cell.num_requests + cell.num_skipped == len(make(kind).requests)
    for policy in Eviction:
        assert cell.num_hits(policy) <= cell.num_optimal_hits


def test_cells_are_drawn_and_written(tmp_path: Path) -> None:
    cells = [measure(make("loop"), capacity) for capacity in (300, 3_000)]
    save_curves(cells, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert markdown(cells, "a command").count("| loop |") == len(cells)
