"""Small plans of every sort, and a naive map of their memory: every state's bytes, from the plan's tensors.

The map is worked out from offsets and strides of tensors and from a layout's letters alone; nothing of the
worker's, nor of the views that it is given, has a part in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from xxhash import xxh3_128

from blockyard.planning.groups import Group
from blockyard.planning.layers import (
    LAYER_KINDS,
    AttentionLayer,
    ChunkedLocalAttention,
    Layer,
    Mamba,
    MlaAttention,
    SlidingWindow,
    SlidingWindowMla,
)
from blockyard.planning.layouts import Layout
from blockyard.planning.memory_map import memory_map
from blockyard.planning.placement import Slot
from blockyard.planning.planner import Plan, RankPlan
from blockyard.planning.request import SparseHost, TensorForm
from blockyard.worker import BlockMemory
from planning.make_layers import make_full, make_mamba, make_plan, make_window

NUM_BLOCKS = 8

SMALL = {"block_size": 4, "num_kv_heads": 3, "head_size": 4, "dtype": "bfloat16"}
LATENT = {**SMALL, "num_kv_heads": 1}
POOLED = {"tokens_per_state": 2}


@dataclass(frozen=True)
class State:
    """One state of one head of one layer in one block, and its bytes."""

    layer: str
    group: int
    on_host: bool
    at: tuple[int, int, int]
    begin: int
    num_bytes: int

    @property
    def where(self) -> slice:
        return slice(self.begin, self.begin + self.num_bytes)

    def pattern(self, salt: int = 0) -> NDArray[np.uint8]:
        """Bytes that no other state has, as far as there are enough of them."""
        digest = xxh3_128(repr((self.layer, self.at, salt)).encode()).digest()
        return np.frombuffer((digest * (self.num_bytes // 16 + 1))[: self.num_bytes], dtype=np.uint8)


def make_kind(kind: str, **sizes: Any) -> Layer:
    """A small layer of ``kind``."""
    of_kind = LAYER_KINDS[kind]
    if of_kind is Mamba:
        state = {"shapes": ((2, 3), (4,)), "dtypes": ("bfloat16", "float32"), "block_size": 4}
        return Mamba(**{**state, **sizes})
    given = {**(LATENT if issubclass(of_kind, MlaAttention | SlidingWindowMla) else SMALL), **sizes}
    if issubclass(of_kind, SlidingWindow):
        given["sliding_window"] = 4
    if issubclass(of_kind, ChunkedLocalAttention):
        given["attention_chunk_size"] = 4
    assert issubclass(of_kind, AttentionLayer)
    return of_kind(**given)


def small_plan(layers: dict[str, Layer], layout: Layout = Layout.LBNHC, **asked: Any) -> Plan:
    num_blocks = asked.pop("num_blocks_override", NUM_BLOCKS)
    return make_plan(
        layers,
        **{
            "layout": layout,
            "num_blocks_override": num_blocks,
            "max_encoder_tokens": 4,
            "max_model_len": 4,
            "max_in_flight_tokens": 4,
            **asked,
        },
    )


def uniform_plan(layout: Layout = Layout.LBNHC, **sizes: Any) -> Plan:
    """Three equal layers of full attention in one group."""
    return small_plan({f"layer.{number}": make_full(**{**SMALL, **sizes}) for number in range(3)}, layout)


def hybrid_plan(layout: Layout = Layout.LBNHC, **asked: Any) -> Plan:
    """Full attention, windows and padded recurrent states in groups that overlay each other."""
    page = 2 * 4 * 2 * 8 * 2
    sizes = {"block_size": 4, "head_size": 8, "dtype": "bfloat16"}
    layers: dict[str, Layer] = {}
    for number in range(2):
        layers[f"full.{number}"] = make_full(**sizes)
        layers[f"window.{number}"] = make_window(**sizes, sliding_window=4)
        if layout.keeps_pages_whole:
            layers[f"state.{number}"] = make_mamba(
                block_size=4, shapes=((5,), (3, 2)), dtypes=("float32", "float32"), page_size_padded=page
            )
    return small_plan(layers, layout, **asked)


def sparse_plan() -> Plan:
    """Sparse pages on the host, indexers and derived pages on the device."""
    layers: dict[str, Layer] = {}
    for number in range(3):
        layers[f"layer.{number}.mla"] = make_kind("mla_attention", head_size=6, is_index_group_leader=True)
        layers[f"layer.{number}.indexer"] = make_kind("mla_attention", head_size=5, cache_role="indexer")
    host = SparseHost(host_pool_bytes=1_500, index_topk=4)
    return small_plan(layers, Layout.BLHNC, sparse_host=host, num_blocks_override=12)


def shared_slot_plan(layout: Layout = Layout.BLNHC, **asked: Any) -> Plan:
    """Recurrent layers in the slots of MLA layers."""
    layers: dict[str, Layer] = {}
    for number in range(2):
        layers[f"mla.{number}"] = make_kind("mla_attention")
        layers[f"indexer.{number}"] = make_kind(
            "mla_attention", head_size=3, dtype="uint8", tokens_per_state=2
        )
    for number in range(4):
        layers[f"state.{number}"] = make_kind("mamba", shapes=((9,),), dtypes=("uint8",))
    return small_plan(layers, layout, **asked)


def slot_form_plan() -> Plan:
    return hybrid_plan(Layout.BLNHC, tensor_form=TensorForm.SLOTS)


def memory_of(plan: Plan, rank: int = 0) -> BlockMemory:
    return BlockMemory(memory_map(plan, rank))


def backing_of(memory: BlockMemory, group: int | None) -> torch.Tensor:
    """The bytes that the blocks of ``group`` lie in."""
    on_host = group is not None and memory.map.groups[group].host_resident
    return memory.host_backing if on_host else memory.backing


def fill_randomly(memory: BlockMemory, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for backing in (memory.backing, memory.host_backing):
        backing.random_(0, 256, generator=generator)


# The naive map


def states_of(plan: Plan, rank: int = 0) -> Iterator[State]:
    """Every state in the rank's memory."""
    share = plan.ranks[rank]
    for number, group in enumerate(share.placement.groups):
        assert not group.host_resident or plan.host_pool
        num_blocks = plan.host_pool.num_blocks if group.host_resident and plan.host_pool else plan.num_blocks
        for name, layer in group.layers.items():
            for at in product(range(num_blocks), range(layer.num_heads), range(layer.num_states)):
                begin = _begin(plan, share, group, name, at)
                yield State(name, number, group.host_resident, at, begin, layer.state_bytes)


def _begin(plan: Plan, share: RankPlan, group: Group, name: str, at: tuple[int, int, int]) -> int:
    block, head, state = at
    layer = group.layers[name]
    if group.derived:
        return block * share.placement.bytes_per_block + [*group.layers].index(name) * layer.page_bytes
    tensor = next(t for t in share.tensors if name in (t.shared_by if isinstance(t, Slot) else t.layers))
    if isinstance(tensor, Slot):
        page, num_layers = tensor.offset + block * tensor.block_stride, 1
    else:
        place, num_layers = [*tensor.layers].index(name), len(tensor.layers)
        page = tensor.offset + place * tensor.layer_stride + block * tensor.block_stride
    is_dense = group.host_resident or share.placement.shares_slots
    letters = "LBNHC" if is_dense else share.placement.layout.value
    return page + _inside(letters, layer, head, state, plan.num_blocks, num_layers)


def _inside(letters: str, layer: Layer, head: int, state: int, num_blocks: int, num_layers: int) -> int:
    """From the page's first byte to a state's."""
    if letters == "LHBNC":
        return (head * num_blocks * layer.num_states + state) * layer.state_bytes
    if letters == "BHLNC":
        return (head * num_layers * layer.num_states + state) * layer.state_bytes
    if letters.endswith("HNC"):
        return (head * layer.num_states + state) * layer.state_bytes
    return (state * layer.num_heads + head) * layer.state_bytes


def naive_zero(memory: bytearray, states: Sequence[State], block_ids: Sequence[int]) -> None:
    """Zero every byte of the blocks."""
    for state in states:
        if state.at[0] in block_ids:
            memory[state.where] = bytes(state.num_bytes)


def naive_copy(memory: bytearray, states: Sequence[State], copies: Sequence[tuple[int, int]]) -> None:
    """Copy state by state."""
    before = bytes(memory)
    places = {(state.layer, state.at): state for state in states}
    for (source, destination), state in product(copies, states):
        if state.at[0] == source:
            to = places[state.layer, (destination, *state.at[1:])]
            memory[to.where] = before[state.where]


def states_in(states: Sequence[State], group: int | None) -> list[State]:
    """Those of a group, or of all on the device."""
    if group is None:
        return [state for state in states if not state.on_host]
    return [state for state in states if state.group == group]
