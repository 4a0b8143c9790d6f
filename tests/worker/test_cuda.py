"""The same on a CUDA device: what was done there is what is done on a CPU."""

from pathlib import Path

import pytest
import torch

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layouts import Layout
from blockyard.planning.memory_map import memory_map
from blockyard.planning.planner import Plan
from blockyard.worker import BlockImage, BlockMemory, BlockTables, slot_mapping
from worker.small_plans import (
    fill_randomly,
    hybrid_plan,
    memory_of,
    shared_slot_plan,
    slot_form_plan,
    sparse_plan,
    uniform_plan,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

PLANS = {
    **{f"uniform-{layout}": uniform_plan(layout) for layout in Layout},
    "odd": uniform_plan(dtype="uint8", head_size=3),
    "hybrid": hybrid_plan(),
    "shared-slots": shared_slot_plan(),
    "slot-form": slot_form_plan(),
    "sparse-host": sparse_plan(),
}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def pair_of(plan: Plan) -> tuple[BlockMemory, BlockMemory]:
    """The same random bytes on the CPU and on the device."""
    here, there = memory_of(plan), BlockMemory(memory_map(plan, 0), device="cuda")
    fill_randomly(here)
    there.backing.copy_(here.backing)
    there.host_backing.copy_(here.host_backing)
    return here, there


def check_same(here: BlockMemory, there: BlockMemory) -> None:
    assert torch.equal(here.backing, there.backing.cpu())
    assert torch.equal(here.host_backing, there.host_backing)


@each_plan
def test_the_host_memory_is_pinned_and_no_larger(plan: Plan) -> None:
    _, there = pair_of(plan)
    assert there.host_backing.untyped_storage().nbytes() == there.map.host_bytes
    assert there.host_backing.is_pinned() or not there.map.host_bytes


@each_plan
def test_zeroing_and_copying_are_those_of_a_cpu(plan: Plan) -> None:
    here, there = pair_of(plan)
    for group in (None, *range(len(here.map.groups))):
        for memory in (here, there):
            memory.zero([4, 2], group)
            memory.copy([(1, 2), (1, 3), (5, 6)], group)
        check_same(here, there)


@each_plan
def test_blocks_move_between_devices_by_way_of_a_file(plan: Plan, tmp_path: Path) -> None:
    here, there = pair_of(plan)
    for group in range(len(here.map.groups)):
        image = there.export([1, 4], group)
        assert (
            all(blocks.is_pinned() for blocks in image.layers.values())
            or there.map.groups[group].host_resident
        )
        assert image.checksums == here.export([1, 4], group).checksums
        image.save(tmp_path / "blocks")
        for memory in (here, there):
            memory.load(BlockImage.load(tmp_path / "blocks", pin_memory=True), [2, 3])
        check_same(here, there)


def test_refusals_leave_the_device_as_it_is() -> None:
    here, there = pair_of(uniform_plan())
    with pytest.raises(InvalidRequest):
        there.copy([(1, 2), (2, 3)])
    check_same(here, there)


def test_tokens_are_gathered_on_the_device() -> None:
    here, there = pair_of(uniform_plan())
    found = there.gather("layer.1", [5, 0, 4], 10)
    assert found.is_cuda
    assert torch.equal(found.view(torch.uint8).cpu(), here.gather("layer.1", [5, 0, 4], 10).view(torch.uint8))


def test_slots_are_those_of_a_cpu() -> None:
    table = torch.arange(64, dtype=torch.int32).view(8, 8)
    sequences, positions = torch.arange(8).repeat(16), torch.arange(128)
    expected = slot_mapping(table, sequences, positions, 16)
    assert torch.equal(slot_mapping(table.cuda(), sequences.cuda(), positions.cuda(), 16).cpu(), expected)


def test_a_table_that_is_changed_while_it_is_sent_is_sent_as_it_was() -> None:
    tables = BlockTables(64, 1_024, "cuda")
    seen = []
    for step in range(1, 20):
        tables.fill([[step] * 1_024] * 64)
        # Keeps the stream busy, so that copies are under way when the next step writes.
        torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call] # torch's own fault
        seen.append(tables.commit().clone())
    assert all(bool((tensor == step).all()) for step, tensor in enumerate(seen, 1))
