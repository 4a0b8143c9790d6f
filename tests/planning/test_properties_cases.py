"""The smallest requests at which a property once failed, each with what should come of it."""

from dataclasses import replace
from typing import Any

import pytest

from blockyard.planning.errors import InsufficientMemory, PlanError
from blockyard.planning.groups import Layers
from blockyard.planning.layers import FullAttention, KpoolTail, Mamba, MlaAttention, SlidingWindow
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest, Rank
from planning.test_properties_placement import check_bytes, check_strides

SIZES: dict[str, Any] = {"block_size": 2, "num_kv_heads": 1, "head_size": 4, "dtype": "uint8"}

MLA = MlaAttention(**SIZES)
INDEXER = MlaAttention(**SIZES, tokens_per_state=2)
STATE = Mamba(block_size=2, shapes=((4,),), dtypes=("uint8",))
TAIL = KpoolTail(**{**SIZES, "block_size": 1, "head_size_v": 0}, sliding_window=2, dcp_sharded=False)


def make_request(*ranks: Layers, available_bytes: int = 400, **options: Any) -> PlanRequest:
    given = [Rank(available_bytes=available_bytes, layers=layers) for layers in ranks]
    return PlanRequest(**{"ranks": given, "max_model_len": 4, "max_in_flight_tokens": 4, **options})


def planned_soundly(request: PlanRequest) -> Plan | None:
    """The plan, every byte of it looked at; None where it is refused."""
    try:
        result = plan(request)
    except PlanError:
        return None
    for rank in result.ranks:
        check_bytes(result, rank)
        check_strides(result, rank)
    return result


def test_more_tails_than_indexers_are_refused_or_placed() -> None:
    planned_soundly(make_request({"m": MLA, "i": INDEXER, "s": STATE, "t0": TAIL, "t1": TAIL}))


def test_a_stage_with_more_tails_than_indexers_is_refused_or_placed() -> None:
    first = {"m0": MLA, "i0": INDEXER, "s0": STATE, "i1": INDEXER}
    planned_soundly(make_request(first, {"m1": MLA, "i2": INDEXER, "t0": TAIL, "t1": TAIL}))


@pytest.mark.parametrize("layout", Layout)
def test_groups_of_equal_pages_and_other_heads_never_meet(layout: Layout) -> None:
    full = FullAttention(**{**SIZES, "num_kv_heads": 2})
    window = SlidingWindow(**{**SIZES, "head_size": 8}, sliding_window=2)
    assert full.page_bytes == window.page_bytes
    planned_soundly(make_request({"f": full, "w": window}, layout=layout))


@pytest.mark.parametrize("layout", Layout)
def test_a_state_as_large_as_a_page_of_several_heads_never_meets_it(layout: Layout) -> None:
    full = FullAttention(**{**SIZES, "num_kv_heads": 2})
    state = Mamba(block_size=2, shapes=((full.page_bytes,),), dtypes=("uint8",))
    planned_soundly(make_request({"f": full, "s": state}, layout=layout))


@pytest.mark.parametrize("layout", Layout)
def test_slots_that_are_shared_keep_the_heads_of_a_page_inside_it(layout: Layout) -> None:
    mla, indexer = MLA.but(num_kv_heads=2), INDEXER.but(num_kv_heads=2)
    planned_soundly(make_request({"m": mla, "i": indexer, "s": STATE}, layout=layout))


@pytest.mark.parametrize("layout", Layout)
def test_blocks_keep_the_alignment_asked_or_the_layout_is_refused(layout: Layout) -> None:
    full = FullAttention(**SIZES, block_stride_alignment=6)
    assert full.page_bytes % 6
    planned_soundly(make_request({"f": full}, layout=layout))


@pytest.mark.parametrize("poorer_bytes", [64, 24, 0])
def test_the_length_that_a_refusal_estimates_fits_on_every_rank(poorer_bytes: int) -> None:
    layer = FullAttention(**SIZES)
    request = make_request({"a": layer}, {"b": layer}, max_model_len=100)
    richer, poorer = request.ranks
    request = replace(request, ranks=[richer, replace(poorer, available_bytes=poorer_bytes)])
    with pytest.raises(PlanError) as refusal:
        plan(request)
    if isinstance(refusal.value, InsufficientMemory):
        estimate = refusal.value.figures["longest_model_len"]
        if estimate:
            plan(replace(request, max_model_len=estimate))
