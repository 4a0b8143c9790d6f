"""What is written through a layer's tensors lies in the memory where the plan says, and nowhere else."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layers import LAYER_KINDS, Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan
from blockyard.worker import BlockMemory
from blockyard.worker.dtypes import TORCH_DTYPES
from planning.make_layers import make_full
from worker.small_plans import (
    SMALL,
    State,
    backing_of,
    hybrid_plan,
    make_kind,
    memory_of,
    shared_slot_plan,
    slot_form_plan,
    small_plan,
    sparse_plan,
    states_of,
    uniform_plan,
)

DTYPES = ["bfloat16", "float32", "float16", "float8_e4m3fn", "float8_e5m2", "uint8", "int8"]
ATTENTION = [kind for kind in LAYER_KINDS if kind != "mamba"]


def write_patterns(memory: BlockMemory, states: list[State], *, salt: int = 0) -> None:
    """Each state's pattern, through its layer's elements where they can be seen, else through its bytes."""
    for state in states:
        cache = memory.layers[state.layer]
        pattern = torch.from_numpy(state.pattern(salt).copy())
        try:
            cache.content[state.at] = pattern.view(cache.dtype)
        except InvalidRequest:
            cache.bytes[state.at] = pattern


def check_patterns(plan: Plan) -> None:
    """Write every state of one group after another, and compare the whole memory each time."""
    memory = memory_of(plan)
    states = list(states_of(plan))
    for number in range(len(memory.map.groups)):
        backing = backing_of(memory, number)
        backing.zero_()
        expected = np.zeros(backing.numel(), dtype=np.uint8)
        of_group = [state for state in states if state.group == number]
        for state in of_group:
            assert not expected[state.where].any(), "two states of a group meet"
            expected[state.where] = state.pattern()
        write_patterns(memory, of_group)
        np.testing.assert_array_equal(backing.numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ATTENTION)
@pytest.mark.parametrize("layout", Layout)
def test_every_state_lies_where_the_plan_says(layout: Layout, kind: str, dtype: str) -> None:
    layers = {f"layer.{number}": make_kind(kind, dtype=dtype) for number in range(2)}
    check_patterns(small_plan(layers, layout, num_blocks_override=4))


@pytest.mark.parametrize("dtypes", [("bfloat16", "float32"), ("float16", "float16"), ("uint8", "int8")])
@pytest.mark.parametrize("layout", Layout)
def test_every_recurrent_state_lies_where_the_plan_says(layout: Layout, dtypes: tuple[str, str]) -> None:
    check_patterns(small_plan({f"layer.{n}": make_kind("mamba", dtypes=dtypes) for n in range(3)}, layout))


@pytest.mark.parametrize("num_more", [8, 3])
@pytest.mark.parametrize("kind", ["full_attention", "mla_attention", "hidden_state", "mamba"])
@pytest.mark.parametrize("layout", [layout for layout in Layout if layout.keeps_pages_whole])
def test_padding_of_pages_is_no_part_of_a_state(layout: Layout, kind: str, num_more: int) -> None:
    layer = make_kind(kind)
    padded = layer.but(page_size_padded=layer.page_bytes + num_more)
    check_patterns(small_plan({"layer.0": padded, "layer.1": padded}, layout))


MIXED: dict[str, Any] = {
    **{f"hybrid-{layout}": hybrid_plan(layout) for layout in Layout},
    **{f"shared-slots-{layout}": shared_slot_plan(layout) for layout in Layout if layout.keeps_pages_whole},
    "slot-form": slot_form_plan(),
    "sparse-host": sparse_plan(),
}


@pytest.mark.parametrize("plan", MIXED.values(), ids=MIXED)
def test_every_state_of_several_groups_lies_where_the_plan_says(plan: Plan) -> None:
    assert len(plan.grouping.groups) > 1
    check_patterns(plan)


@pytest.mark.parametrize("plan", MIXED.values(), ids=MIXED)
def test_what_one_layer_writes_is_seen_by_those_that_share_its_bytes_and_no_other(plan: Plan) -> None:
    memory = memory_of(plan)
    by_layer: dict[str, list[State]] = {}
    for state in states_of(plan):
        by_layer.setdefault(state.layer, []).append(state)
    touched = {
        name: {(states[0].on_host, byte) for s in states for byte in range(s.begin, s.begin + s.num_bytes)}
        for name, states in by_layer.items()
    }
    found = set()
    for writer, reader in product(by_layer, by_layer):
        memory.backing.zero_()
        memory.host_backing.zero_()
        memory.layers[writer].bytes.fill_(1)
        num_seen = int(memory.layers[reader].bytes.sum())
        assert num_seen == len(touched[writer] & touched[reader])
        found.add(num_seen > 0)
    assert found == {True, False}


def test_the_layers_of_a_shared_slot_alias_each_other() -> None:
    memory = memory_of(shared_slot_plan())
    memory.layers["mla.0"].bytes.fill_(7)
    aliased = {name for name, cache in memory.layers.items() if bool((cache.bytes == 7).any())}
    assert len(aliased & {f"state.{number}" for number in range(4)}) == 2
    assert aliased & {"mla.1", "indexer.0", "indexer.1"} == set()


@pytest.mark.parametrize("plan", [uniform_plan(), hybrid_plan(), sparse_plan(), shared_slot_plan()])
def test_a_memory_allocates_the_plans_bytes_once(plan: Plan) -> None:
    memory = memory_of(plan)
    assert memory.backing.untyped_storage().nbytes() == memory.map.device_bytes
    assert memory.host_backing.untyped_storage().nbytes() == memory.map.host_bytes
    for cache in memory.layers.values():
        backing = memory.host_backing if cache.view.host_resident else memory.backing
        views = [
            cache.bytes,
            cache.content,
            cache.words,
            *(cache.part(part.name) for part in cache.view.parts),
        ]
        assert {view.untyped_storage().data_ptr() for view in views} == {backing.data_ptr()}


def test_a_rank_without_layers_has_no_bytes() -> None:
    plan = small_plan({"layer.0": make_kind("encoder_only_attention")})
    assert memory_of(plan).layers.keys() == {"layer.0"}
    nothing = memory_of(small_plan({}))
    assert (nothing.backing.numel(), nothing.host_backing.numel(), dict(nothing.layers)) == (0, 0, {})
    nothing.zero([])


# Parts


@pytest.mark.parametrize("layout", Layout)
def test_key_and_value_are_the_two_parts_of_a_state(layout: Layout) -> None:
    plan = small_plan({"layer.0": make_full(**{**SMALL, "head_size_v": 2})}, layout)
    cache = memory_of(plan).layers["layer.0"]
    cache.part("key").fill_(1)
    cache.part("value").fill_(2)
    assert cache.part("key").shape == (8, 3, 4, 4)
    assert cache.part("value").shape == (8, 3, 4, 2)
    assert bool((cache.content == torch.tensor([1, 1, 1, 1, 2, 2])).all())


@pytest.mark.parametrize("layout", Layout)
def test_the_arrays_of_a_recurrent_state_have_their_shapes_and_types(layout: Layout) -> None:
    cache = memory_of(small_plan({f"layer.{n}": make_kind("mamba") for n in range(2)}, layout)).layers[
        "layer.1"
    ]
    first, second = cache.part("state.0"), cache.part("state.1")
    assert (first.shape, first.dtype) == ((8, 1, 1, 2, 3), torch.bfloat16)
    assert (second.shape, second.dtype) == ((8, 1, 1, 4), torch.float32)
    first[3, 0, 0] = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    second[3, 0, 0] = torch.arange(4, dtype=torch.float32)
    raw = cache.bytes[3, 0, 0]
    assert raw[:12].view(torch.bfloat16).tolist() == [0, 1, 2, 3, 4, 5]
    assert raw[12:].clone().view(torch.float32).tolist() == [0, 1, 2, 3]


def test_a_part_that_a_layer_does_not_have_is_refused_with_those_that_it_has() -> None:
    cache = memory_of(uniform_plan()).layers["layer.0"]
    with pytest.raises(InvalidRequest, match=r"no 'state\.0'; it has key, value"):
        cache.part("state.0")


def test_the_parts_of_a_packed_state_are_not_known() -> None:
    cache = memory_of(uniform_plan(state_content_bytes=8)).layers["layer.0"]
    with pytest.raises(InvalidRequest, match="none: its states are packed"):
        cache.part("key")


@pytest.mark.parametrize(
    "layer", [make_full(**SMALL, state_content_bytes=7), make_full(**SMALL, page_size_padded=4 * 3 * 16 + 1)]
)
def test_elements_between_two_are_refused_and_bytes_are_not(layer: Layer) -> None:
    memory = memory_of(small_plan({"layer.0": layer, "layer.1": layer}))
    cache = memory.layers["layer.1"]
    assert cache.bytes.shape == (8, 3, 4, layer.state_bytes)
    with pytest.raises(InvalidRequest, match="only `bytes` can be had"):
        _ = cache.content


def test_a_part_that_begins_between_two_elements_is_refused() -> None:
    layer = make_kind("mamba", shapes=((1,), (1,), (3,)), dtypes=("uint8", "float32", "uint8"))
    cache = memory_of(small_plan({"layer.0": layer})).layers["layer.0"]
    assert cache.content.dtype is torch.uint8
    with pytest.raises(InvalidRequest, match=r"state\.1 of"):
        cache.part("state.1")


def test_there_is_a_torch_dtype_of_every_name() -> None:
    for name, dtype in TORCH_DTYPES.items():
        assert str(dtype) == f"torch.{name}"


def test_memories_and_layers_show_their_sizes_and_no_bytes() -> None:
    memory = memory_of(sparse_plan())
    assert repr(memory) == (
        f"<BlockMemory on cpu: 12 blocks, 12 layers, {memory.map.device_bytes} bytes there and "
        f"{memory.map.host_bytes} in the host's memory>"
    )
    assert (
        repr(memory_of(uniform_plan()).layers["layer.1"])
        == "<LayerCache 'layer.1', bfloat16: 8 blocks, 3 heads, 4 states of 16 bytes>"
    )
