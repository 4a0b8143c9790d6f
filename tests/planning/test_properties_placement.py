"""Where pages lie, byte by byte: a naive map of every byte of a rank's memory beside the planner's strides.

The claim that all else rests on: a block id owns the same bytes whichever group holds it. Groups overlay each
other, so blocks of different ids never meet, and within one group no two states do.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from hypothesis import HealthCheck, assume, given, settings

from blockyard.core.errors import BlockyardError
from blockyard.planning.groups import Group
from blockyard.planning.layouts import Layout, View
from blockyard.planning.placement import Slot, Tensor, view
from blockyard.planning.planner import Plan, RankPlan, plan
from blockyard.planning.request import PlanRequest, TensorForm
from planning.plan_strategies import requests
from rounds import NIGHTLY, run_rounds, seeded

NUM_REQUESTS = 2_000 if NIGHTLY else 140
"""For each layout."""

SETTINGS = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

MUST_HAPPEN = (
    *(f"{layout} of one group" for layout in Layout),
    *(f"{layout} of several groups" for layout in Layout),
    "slots of one group",
    "slots of several groups",
    "pages of several sizes in a group",
    "pages of several sizes in a block",
    "slots that groups share",
    "derived pages",
    "pages on the host",
    "padded pages",
    "hidden states beside other groups",
    "a rank without layers",
    "a rank with none of a group's layers",
    "a group elsewhere",
)
"""Without these a run would have shown little."""


@dataclass(frozen=True)
class Piece:
    """Bytes that lie together: a state of one layer, or a page that is not looked into."""

    begin: int
    end: int
    group: int
    layer: str
    block: int


def planned(request: PlanRequest) -> Plan:
    """The plan; a request that is refused is not looked at."""
    try:
        return plan(request)
    except BlockyardError:
        assume(False)
        raise


def run(*checks: Callable[[Plan, RankPlan], None], num_requests: int, round_number: int = 0) -> Counter[str]:
    """``checks`` on every rank of the plans of so many requests for each layout; what these were like."""
    coverage: Counter[str] = Counter()
    for layout in Layout:

        @settings(SETTINGS, max_examples=num_requests)
        @given(requests(layout=layout, roomy=True))
        def check_all(request: PlanRequest) -> None:
            result = planned(request)
            assume(all(size_of(result, rank) < 20_000 for rank in result.ranks))
            coverage.update(traits(result))
            for rank, check in product(result.ranks, checks):
                check(result, rank)

        seeded(check_all, round_number)()
    return coverage


def traits(result: Plan) -> Iterator[str]:
    request, groups = result.request, result.grouping.groups
    form = "slots" if request.tensor_form is TensorForm.SLOTS else str(request.layout)
    yield f"{form} of {'one group' if len(groups) == 1 else 'several groups'}"
    pages = [{layer.page_bytes for layer in group.layers.values()} for group in groups]
    found = {
        "pages of several sizes in a group": any(len(sizes) > 1 for sizes in pages),
        "pages of several sizes in a block": len(groups) > 1 and len(set().union(*pages)) > 1,
        "slots that groups share": any(rank.placement.shares_slots for rank in result.ranks),
        "derived pages": any(group.derived for group in groups),
        "pages on the host": result.host_pool is not None,
        "padded pages": any(
            layer.page_bytes > layer.content_bytes for group in groups for layer in group.layers.values()
        ),
        "hidden states beside other groups": len({group.form.kind for group in groups} | {"hidden_state"})
        == len({group.form.kind for group in groups})
        > 1,
        "a rank without layers": len(groups) > 0 and any(not rank.layers for rank in request.ranks),
        "a rank with none of a group's layers": any(
            rank.layers and not all(group.layers for group in ranked.placement.groups)
            for rank, ranked in zip(request.ranks, result.ranks, strict=True)
        ),
        "a group elsewhere": any(getattr(t, "is_elsewhere", False) for r in result.ranks for t in r.tensors),
    }
    yield from (trait for trait, is_found in found.items() if is_found)


def device_groups(rank: RankPlan) -> list[tuple[int, Group]]:
    groups = rank.placement.groups
    return [(number, group) for number, group in enumerate(groups) if not group.host_resident]


def views(result: Plan, rank: RankPlan) -> Iterator[tuple[int, str, Tensor, View]]:
    """Of the device's layers: number of the group, name, tensor and view."""
    of = {name: number for number, group in device_groups(rank) for name in group.layers}
    for tensor in rank.tensors:
        if isinstance(tensor, Slot) or tensor.host_resident or tensor.is_elsewhere:
            continue
        for name in tensor.layers:
            layer = rank.placement.groups[of[name]].layers[name]
            yield of[name], name, tensor, view(tensor, name, layer, result.request.layout, result.num_blocks)


def pieces(result: Plan, rank: RankPlan) -> Iterator[Piece]:
    """All that lies in the rank's device memory."""
    yield from states(result, rank)
    yield from slot_pages(result, rank)
    yield from derived_pages(result, rank)


def states(result: Plan, rank: RankPlan) -> Iterator[Piece]:
    for number, name, _, seen in views(result, rank):
        *counts, state_bytes = seen.shape
        for at in product(*map(range, counts)):
            begin = seen.offset + sum(place * stride for place, stride in zip(at, seen.strides, strict=False))
            yield Piece(begin, begin + state_bytes, number, name, at[0])


def slot_pages(result: Plan, rank: RankPlan) -> Iterator[Piece]:
    slots = [slot for slot in rank.tensors if isinstance(slot, Slot)]
    for slot, (number, group) in product(slots, device_groups(rank)):
        for name, block in product(set(slot.shared_by) & group.layers.keys(), range(result.num_blocks)):
            begin = slot.offset + block * slot.block_stride
            yield Piece(begin, begin + group.layers[name].page_bytes, number, name, block)


def derived_pages(result: Plan, rank: RankPlan) -> Iterator[Piece]:
    """Side by side from a block's first byte, as the reply says."""
    for number, group in enumerate(rank.placement.groups):
        if group.derived:
            for (place, name), block in product(enumerate(group.layers), range(result.num_blocks)):
                page = group.layers[name].page_bytes
                begin = block * rank.placement.bytes_per_block + place * page
                yield Piece(begin, begin + page, number, name, block)


def size_of(result: Plan, rank: RankPlan) -> int:
    return result.num_blocks * rank.placement.bytes_per_block


def check_bytes(result: Plan, rank: RankPlan) -> None:
    """Give every byte away, first within each group and then over all groups."""
    size = size_of(result, rank)
    blocks: list[int | None] = [None] * size
    taken: dict[int, bytearray] = {}
    for piece in pieces(result, rank):
        where, length = slice(piece.begin, piece.end), piece.end - piece.begin
        assert 0 <= piece.begin <= piece.end <= size, f"outside of {size} bytes: {piece}"
        of_group = taken.setdefault(piece.group, bytearray(size))
        assert not any(of_group[where]), f"two states of a group meet: {piece}"
        of_group[where] = b"\1" * length
        assert set(blocks[where]) <= {None, piece.block}, f"another block's bytes: {piece}"
        blocks[where] = [piece.block] * length


def check_places(result: Plan, rank: RankPlan) -> None:
    listed = Counter(
        name
        for tensor in rank.tensors
        if isinstance(tensor, Slot) or not tensor.is_elsewhere
        for name in (tensor.shared_by if isinstance(tensor, Slot) else tensor.layers)
    )
    request = result.request.ranks[result.ranks.index(rank)]
    assert listed == Counter(request.layers.keys())


def check_slots(result: Plan, rank: RankPlan) -> None:
    of = {name: number for number, group in device_groups(rank) for name in group.layers}
    end = 0
    for slot in rank.tensors:
        if isinstance(slot, Slot):
            assert slot.shared_by
            assert len({of[name] for name in slot.shared_by}) == len(slot.shared_by)
            pages = {rank.placement.groups[of[name]].layers[name].page_bytes for name in slot.shared_by}
            assert len(pages) == 1
            assert slot.offset == end
            end += pages.pop()
    assert end <= rank.placement.bytes_per_block or not end
    assert all(tensor.size == size_of(result, rank) for tensor in rank.tensors if isinstance(tensor, Slot))


def check_strides(result: Plan, rank: RankPlan) -> None:
    for number, name, tensor, seen in views(result, rank):
        layer = rank.placement.groups[number].layers[name]
        assert tensor.size == size_of(result, rank)
        assert seen.offset == tensor.offset + list(tensor.layers).index(name) * tensor.layer_stride
        assert seen.strides[0] == tensor.block_stride
        assert seen.strides[0] % layer.stride_alignment == 0, f"{name}: {layer}"
    for group in rank.placement.groups:
        for layer in group.layers.values() if group.derived else ():
            assert rank.placement.bytes_per_block % layer.stride_alignment == 0


def check_host(result: Plan, rank: RankPlan) -> None:
    if result.host_pool is None:
        return
    sparse_host = result.request.sparse_host
    assert sparse_host is not None
    num_blocks = result.host_pool.num_blocks
    assert num_blocks * result.host_pool.block_bytes <= sparse_host.host_pool_bytes
    taken = Counter[int]()
    for tensor in rank.tensors:
        if isinstance(tensor, Slot) or not tensor.host_resident or tensor.is_elsewhere:
            continue
        assert tensor.size <= sparse_host.host_pool_bytes
        for place, name in enumerate(tensor.layers):
            layer = rank.placement.host_groups[0].layers[name]
            begin = tensor.offset + place * tensor.layer_stride
            end = begin + (num_blocks - 1) * tensor.block_stride + layer.page_bytes
            assert tensor.block_stride >= layer.page_bytes
            assert 0 <= begin <= end <= tensor.size
            taken.update(range(begin, end, max(1, (end - begin) // 50)))
    assert all(count == 1 for count in taken.values())


def test_a_block_id_owns_the_same_bytes_whichever_group_holds_it() -> None:
    run_rounds(
        lambda round_number: run(check_bytes, num_requests=NUM_REQUESTS, round_number=round_number),
        MUST_HAPPEN,
    )


def test_each_layer_has_one_place_and_each_place_has_its_strides() -> None:
    run(check_places, check_slots, check_strides, check_host, num_requests=NUM_REQUESTS // 3)
