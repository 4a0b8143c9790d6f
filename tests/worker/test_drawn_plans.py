"""What holds of any plan's tensors, over drawn models and layouts, beside the naive map of the same plan."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from blockyard.core.errors import BlockyardError
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest, TensorForm
from blockyard.worker import BlockMemory
from planning.plan_strategies import requests
from rounds import NIGHTLY, run_rounds, seeded
from worker.small_plans import (
    State,
    backing_of,
    fill_randomly,
    memory_of,
    naive_copy,
    naive_zero,
    states_in,
    states_of,
)

NUM_REQUESTS = 500 if NIGHTLY else 40
"""For each layout."""

MAX_BYTES = 6_000

SETTINGS = settings(
    deadline=None,
    print_blob=True,
    max_examples=NUM_REQUESTS,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

MUST_HAPPEN = (
    *(str(layout) for layout in Layout),
    "several groups",
    "slot form",
    "pages on the host",
    "derived pages",
    "slots that groups share",
    "layers that alias each other",
    "padded pages",
    "copied blocks",
    "zeroed blocks",
)


def planned(request: PlanRequest) -> Plan:
    """The plan, if there is one and it is small."""
    try:
        result = plan(request)
    except BlockyardError:
        assume(False)
        raise
    assume(all(rank.placement.bytes_per_block * result.num_blocks < MAX_BYTES for rank in result.ranks))
    assume(result.host_pool is None or result.host_pool.block_bytes * result.host_pool.num_blocks < MAX_BYTES)
    return result


def traits(result: Plan) -> Iterator[str]:
    groups = result.grouping.groups
    layers = [layer for group in groups for layer in group.layers.values()]
    yield str(result.request.layout)
    found = {
        "several groups": len(groups) > 1,
        "slot form": result.request.tensor_form is TensorForm.SLOTS,
        "pages on the host": result.host_pool is not None,
        "derived pages": any(group.derived for group in groups),
        "slots that groups share": any(rank.placement.shares_slots for rank in result.ranks),
        "padded pages": any(layer.page_bytes > layer.content_bytes for layer in layers),
    }
    yield from (trait for trait, is_found in found.items() if is_found)


def bytes_of_views(memory: BlockMemory) -> dict[str, set[int]]:
    """The bytes that each layer is seen at, read through its own tensor: a byte of its number at a time."""
    places: dict[str, set[int]] = {}
    for name, cache in memory.layers.items():
        backing = backing_of(memory, cache.view.group)
        number = np.zeros(cache.bytes.shape, dtype=np.int64)
        for digit in range(2):
            values = (np.arange(backing.numel()) >> 8 * digit) & 255
            backing.numpy()[:] = values
            number += cache.bytes.numpy().astype(np.int64) << 8 * digit
        places[name] = set(number.flatten().tolist())
        assert len(places[name]) == number.size, "two states of a layer meet"
    return places


def check_places(result: Plan, rank: int) -> bool:
    """Layers are seen at the naive map's bytes, apart in a group; whether layers of two groups alias."""
    memory = memory_of(result, rank)
    states = list(states_of(result, rank))
    found, expected = bytes_of_views(memory), {name: set[int]() for name in memory.layers}
    for state in states:
        expected[state.layer].update(range(state.begin, state.begin + state.num_bytes))
    assert found == expected
    has_aliases = False
    for first, second in combinations(memory.layers.values(), 2):
        if first.view.host_resident == second.view.host_resident and found[first.name] & found[second.name]:
            assert first.view.group != second.view.group, "two layers of a group meet"
            has_aliases = True
    return has_aliases


def check_operations(result: Plan, rank: int, data: st.DataObject) -> Iterator[str]:
    """Zeroing and copying do what the naive model does."""
    memory = memory_of(result, rank)
    fill_randomly(memory)
    states = list(states_of(result, rank))
    group = data.draw(st.sampled_from([None, *range(len(memory.map.groups))]))
    num_blocks = memory._num_blocks(group)
    of_group: list[State] = states_in(states, group)
    expected = bytearray(backing_of(memory, group).numpy().tobytes())
    order = data.draw(st.permutations(range(1, num_blocks)))
    zeroed = order[: data.draw(st.integers(0, 4))]
    memory.zero(zeroed, group)
    naive_zero(expected, of_group, zeroed)
    destinations, sources = order[: len(order) // 2], order[len(order) // 2 :]
    if sources:
        chosen = [data.draw(st.sampled_from(sources)) for _ in destinations]
        copies = list(zip(chosen, destinations, strict=True))
        memory.copy(copies, group)
        naive_copy(expected, of_group, copies)
        yield from ["copied blocks"] * bool(copies and of_group)
    yield from ["zeroed blocks"] * bool(zeroed and of_group)
    np.testing.assert_array_equal(backing_of(memory, group).numpy(), np.frombuffer(expected, dtype=np.uint8))


def test_tensors_and_operations_are_those_of_the_naive_map() -> None:
    def look_at_many(round_number: int) -> Counter[str]:
        coverage = Counter[str]()
        for layout in Layout:

            @SETTINGS
            @given(requests(layout=layout, roomy=True), st.data())
            def look(request: PlanRequest, data: st.DataObject) -> None:
                result = planned(request)
                coverage.update(traits(result))
                for rank in range(len(result.ranks)):
                    coverage["layers that alias each other"] += check_places(result, rank)
                    coverage.update(check_operations(result, rank, data))

            seeded(look, round_number)()
        return coverage

    run_rounds(look_at_many, MUST_HAPPEN)
