"""Zeroing and copying blocks, beside a naive model that goes state by state."""

from typing import Any

import numpy as np
import pytest
import torch

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan
from blockyard.worker import BlockMemory
from blockyard.worker.block_ids import runs
from worker.small_plans import (
    backing_of,
    fill_randomly,
    hybrid_plan,
    memory_of,
    naive_copy,
    naive_zero,
    shared_slot_plan,
    slot_form_plan,
    sparse_plan,
    states_in,
    states_of,
    uniform_plan,
)

PLANS: dict[str, Plan] = {
    **{f"uniform-{layout}": uniform_plan(layout) for layout in Layout},
    **{f"odd-{layout}": uniform_plan(layout, dtype="uint8", head_size=3) for layout in Layout},
    **{f"hybrid-{layout}": hybrid_plan(layout) for layout in Layout},
    "padded": uniform_plan(Layout.BLHNC, page_size_padded=200),
    "shared-slots": shared_slot_plan(),
    "slot-form": slot_form_plan(),
    "sparse-host": sparse_plan(),
}
CASES = [
    pytest.param(plan, group, id=f"{name}-{'all' if group is None else group}")
    for name, plan in PLANS.items()
    for group in (None, *range(len(plan.grouping.groups)))
]
MANY = [5, 2, 3, 6]
"""Some of which follow each other."""
COPIES = [(1, 6), (7, 2), (1, 3), (4, 5)]


def both(plan: Plan, group: int | None) -> tuple[BlockMemory, bytearray]:
    """A memory of random bytes, and those that the blocks of ``group`` lie in."""
    memory = memory_of(plan)
    fill_randomly(memory)
    return memory, bytearray(backing_of(memory, group).numpy().tobytes())


def check_same(memory: BlockMemory, group: int | None, expected: bytearray) -> None:
    found = backing_of(memory, group).numpy()
    np.testing.assert_array_equal(found, np.frombuffer(expected, dtype=np.uint8))


@pytest.mark.parametrize(("plan", "group"), CASES)
def test_zeroing_blocks_zeroes_their_states_and_no_other_byte(plan: Plan, group: int | None) -> None:
    memory, expected = both(plan, group)
    memory.zero(MANY, group)
    naive_zero(expected, states_in(list(states_of(plan)), group), MANY)
    check_same(memory, group, expected)


@pytest.mark.parametrize(("plan", "group"), CASES)
def test_copying_blocks_copies_their_states_and_no_other_byte(plan: Plan, group: int | None) -> None:
    memory, expected = both(plan, group)
    memory.copy(COPIES, group)
    naive_copy(expected, states_in(list(states_of(plan)), group), COPIES)
    check_same(memory, group, expected)


@pytest.mark.parametrize("layout", Layout)
def test_blocks_that_follow_each_other_are_copied_as_any(layout: Layout) -> None:
    plan = uniform_plan(layout)
    memory, expected = both(plan, None)
    copies = [(1, 5), (2, 6), (3, 7), (0, 4)]
    memory.copy(copies)
    naive_copy(expected, list(states_of(plan)), copies)
    check_same(memory, None, expected)


def test_the_null_block_can_be_copied_from() -> None:
    memory = memory_of(uniform_plan())
    memory.backing.fill_(9)
    memory.zero([2])
    memory.copy([(0, 2)])
    assert bool((memory.backing == 9).all())


def test_nothing_to_do_does_nothing() -> None:
    memory, expected = both(uniform_plan(), None)
    memory.zero([])
    memory.copy([])
    check_same(memory, None, expected)


def test_copies_of_a_memory_without_bytes_are_taken() -> None:
    memory = BlockMemory(memory_of(hybrid_plan()).map, device="meta")
    memory.copy([(1, 2)])
    memory.zero([1])
    assert memory.backing.is_meta


def integers(*block_ids: int) -> list[Any]:
    """The same ids, each of another type."""
    kinds = (int, np.int32, torch.tensor, np.uint64)
    return [kinds[place % 4](block) for place, block in enumerate(block_ids)]


def test_ids_are_integers_of_any_sort_and_come_in_any_iterable() -> None:
    plan = uniform_plan()
    memory, expected = both(plan, None)
    memory.zero(iter(integers(*MANY)))
    naive_zero(expected, list(states_of(plan)), MANY)
    memory.zero(torch.tensor([1]))
    naive_zero(expected, list(states_of(plan)), [1])
    memory.zero(np.array([4]))
    naive_zero(expected, list(states_of(plan)), [4])
    check_same(memory, None, expected)


def test_copies_come_in_any_iterable() -> None:
    plan = uniform_plan()
    memory, expected = both(plan, None)
    sources, destinations = zip(*COPIES, strict=True)
    memory.copy(zip(integers(*sources), integers(*destinations), strict=True))
    naive_copy(expected, list(states_of(plan)), COPIES)
    check_same(memory, None, expected)


REFUSED: dict[str, tuple[str, Any, str]] = {
    "zero-null": ("zero", [1, 0], "null block"),
    "zero-negative": ("zero", [1, -1], "block -1 is out of range"),
    "zero-beyond": ("zero", [1, 8], "block 8 is out of range"),
    "zero-twice": ("zero", [1, 2, 1], "block 1 is written twice"),
    "copy-to-null": ("copy", [(1, 2), (3, 0)], "null block"),
    "copy-to-beyond": ("copy", [(1, 2), (3, 8)], "block 8 is out of range"),
    "copy-from-beyond": ("copy", [(1, 2), (8, 3)], "block 8 is out of range"),
    "copy-from-negative": ("copy", [(1, 2), (-1, 3)], "block -1 is out of range"),
    "copy-twice-to-one": ("copy", [(1, 2), (3, 2)], "block 2 is written twice"),
    "copy-of-what-is-written": ("copy", [(1, 2), (2, 3)], "block 2 is both copied and written"),
    "copy-to-itself": ("copy", [(4, 4)], "block 4 is both copied and written"),
    "zero-what-is-no-sequence": ("zero", 1, "block_ids: must be a sequence, not int"),
    "copy-what-is-no-sequence": ("copy", None, "copies: must be a sequence, not NoneType"),
    "copy-ids": ("copy", [(1, 2), 3], "copies.1: is no pair"),
    "copy-three": ("copy", [(1, 2), (3, 4, 5)], "copies.1: is no pair"),
    "copy-a-float": ("copy", [(1, 2), (3.0, 4)], "copies.1: 3.0 is no block id"),
    "copy-to-a-bool": ("copy", [(2, 3), (4, True)], "copies.1: True is no block id"),
    **{
        f"zero-{what}": ("zero", [2, given], "block_ids: .* is no block id: these are integers")
        for what, given in {
            "float": 3.0,
            "bool": True,
            "string": "3",
            "numpy-float": np.float64(3),
            "numpy-bool": np.True_,
            "tensor-of-a-float": torch.tensor(3.0),
            "tensor-of-a-bool": torch.tensor(True),
            "tensor-with-a-dimension": torch.tensor([3]),
        }.items()
    },
}


@pytest.mark.parametrize(("method", "given", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("group", [None, 0])
def test_what_is_refused_changes_nothing(method: str, given: Any, message: str, group: int | None) -> None:
    memory, expected = both(uniform_plan(), group)
    with pytest.raises(InvalidRequest, match=message):
        getattr(memory, method)(given, group)
    check_same(memory, group, expected)


@pytest.mark.parametrize("group", [-1, 1])
def test_a_group_that_is_not_there_is_refused(group: int) -> None:
    memory, expected = both(uniform_plan(), None)
    with pytest.raises(InvalidRequest, match=f"{group} is none of the 1 groups"):
        memory.zero([1], group)
    check_same(memory, None, expected)


def test_ids_of_a_group_on_the_host_are_the_hosts() -> None:
    plan = sparse_plan()
    memory = memory_of(plan)
    (host_group,) = [number for number, group in enumerate(memory.map.groups) if group.host_resident]
    assert memory.map.num_host_blocks < memory.map.num_blocks
    last = memory.map.num_blocks - 1
    memory.zero([last], None)
    with pytest.raises(InvalidRequest, match=f"block {last} is out of range"):
        memory.zero([last], host_group)


@pytest.mark.parametrize("layout", [Layout.LBNHC, Layout.BLNHC])
def test_a_block_of_equal_layers_takes_one_call(layout: Layout) -> None:
    memory = memory_of(uniform_plan(layout))
    (words,) = memory._block_words(None)
    assert words.dtype is torch.int64
    num_regions = 3 if layout is Layout.LBNHC else 1
    assert words.shape == (num_regions, 8, 3 * 4 * 16 * 3 // num_regions // 8)


def test_runs_are_blocks_that_follow_each_other_on_both_sides() -> None:
    assert list(runs([(1, 5), (3, 7), (2, 6), (8, 1), (8, 3), (9, 2)])) == [
        (1, 5, 3),
        (8, 1, 1),
        (8, 3, 1),
        (9, 2, 1),
    ]
    assert list(runs([])) == []
