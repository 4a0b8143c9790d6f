"""What holds of every plan and every refusal, over drawn models, ranks and memories.

Where pages lie is looked at in ``test_properties_placement``.
"""

import copy
import math
from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.planning.errors import HostPoolTooSmall, InsufficientMemory, NoMemory, PlanError
from blockyard.planning.groups import Group
from blockyard.planning.layers import Mamba
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest
from planning.plan_strategies import requests
from rounds import NIGHTLY, run_rounds, seeded

SETTINGS = settings(
    max_examples=4_000 if NIGHTLY else 120,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

TOO_LITTLE = (NoMemory, InsufficientMemory, HostPoolTooSmall)
"""Refusals that more memory, or a shorter request, can turn into a plan."""

MUST_HAPPEN = (
    "planned",
    "invalid_request",
    "no_memory",
    "insufficient_memory",
    "incompatible_page_sizes",
    "cannot_unify_hybrid",
    "layout_cannot_express",
    "invalid_prefix_match_unit",
    "state_page_too_large",
    "pipeline_stage_without_mla",
    "host_pool_too_small",
    "device_buffer_too_small",
)
"""Every outcome, but for ranks that contradict each other and models that are not known: none is drawn."""


def outcome(request: PlanRequest) -> Plan | BlockyardError:
    try:
        return plan(request)
    except BlockyardError as refusal:
        return refusal


def planned(request: PlanRequest) -> Plan:
    """The plan; a request that is refused is not looked at."""
    result = outcome(request)
    assume(isinstance(result, Plan))
    assert isinstance(result, Plan)
    return result


def of_length(request: PlanRequest, max_model_len: int) -> Plan | BlockyardError:
    """What comes of the same request for this length, not to be cut."""
    return outcome(replace(request, max_model_len=max_model_len, auto_fit_max_model_len=False))


def with_memory(request: PlanRequest, more: int) -> PlanRequest:
    ranks = [replace(rank, available_bytes=rank.available_bytes + more) for rank in request.ranks]
    return replace(request, ranks=ranks)


def lcm_and_gcd(groups: list[Group], decode_context: int) -> tuple[int, int]:
    """Of the block sizes, worked out one by one."""
    lcm, gcd = 1, 0
    for group in groups:
        form = group.form
        size = form.block_size * decode_context if form.dcp_sharded else form.block_size
        lcm, gcd = lcm * size // math.gcd(lcm, size), math.gcd(gcd, size)
    return lcm, gcd


def num_request_blocks(result: Plan, *, on_host: bool) -> int:
    workload = result.request.workload(result.max_model_len)
    groups = result.grouping.groups
    return sum(group.max_blocks(workload) for group in groups if group.host_resident is on_host)


def test_a_request_is_planned_or_refused_and_nothing_else() -> None:
    def look_at_many(round_number: int) -> Counter[str]:
        coverage = Counter[str]()

        @settings(SETTINGS, max_examples=SETTINGS.max_examples * 10)
        @given(requests())
        def look(request: PlanRequest) -> None:
            result = outcome(request)
            assert isinstance(result, Plan | PlanError | InvalidRequest)
            coverage["planned" if isinstance(result, Plan) else result.code] += 1
            if isinstance(result, InvalidRequest):
                assert all(error["field"] for error in result.figures["errors"])

        seeded(look, round_number)()
        return coverage

    run_rounds(look_at_many, MUST_HAPPEN)


@SETTINGS
@given(requests())
def test_planning_twice_gives_the_same_and_leaves_the_request_as_it_was(request: PlanRequest) -> None:
    before = copy.deepcopy(request)
    first, second = outcome(request), outcome(request)
    assert request == before
    assert [list(rank.layers) for rank in request.ranks] == [list(rank.layers) for rank in before.ranks]
    if isinstance(first, Plan):
        assert first == second
    else:
        assert not isinstance(second, Plan)
        assert (first.code, first.detail, first.figures) == (second.code, second.detail, second.figures)


@SETTINGS
@given(requests(roomy=True))
def test_all_ranks_list_the_same_groups_in_the_same_order(request: PlanRequest) -> None:
    result = planned(request)
    whole = [(group.form, group.host_resident, group.derived) for group in result.grouping.groups]
    for rank in result.ranks:
        assert [(g.form, g.host_resident, g.derived) for g in rank.placement.groups] == whole


@SETTINGS
@given(requests(roomy=True))
def test_every_layer_is_in_one_group_on_each_rank_that_computes_it(request: PlanRequest) -> None:
    result = planned(request)
    for rank, ranked in zip(request.ranks, result.ranks, strict=True):
        groups = [group for group in ranked.placement.groups if not group.derived]
        assert Counter(name for group in groups for name in group.layers) == Counter(rank.layers.keys())
    names = {name for rank in request.ranks for name in rank.layers}
    reported = Counter(name for group in result.grouping.groups if not group.derived for name in group.layers)
    assert reported == Counter(names)


@SETTINGS
@given(requests(roomy=True))
def test_the_number_of_blocks_is_what_the_smallest_rank_has_room_for(request: PlanRequest) -> None:
    result = planned(request)
    sizes = [(rank.available_bytes, rank.placement.bytes_per_block) for rank in result.ranks]
    rooms = [available // size for available, size in sizes if size]
    if request.num_blocks_override is None:
        assert result.num_blocks == min(rooms, default=1)
        assert all(result.num_blocks * size <= available for available, size in sizes)
    elif rooms:
        assert result.num_blocks == request.num_blocks_override


@SETTINGS
@given(requests(with_override=False), st.sampled_from([1, 7, 100, 10_000]))
def test_more_memory_never_gives_fewer_blocks_nor_a_refusal(request: PlanRequest, more: int) -> None:
    result = planned(request)
    richer = outcome(with_memory(request, more))
    assert isinstance(richer, Plan)
    assert richer.num_blocks >= result.num_blocks
    assert richer.max_model_len >= result.max_model_len
    if result.longest_model_len is None:
        assert richer.longest_model_len is None
    elif richer.longest_model_len is not None:
        assert richer.longest_model_len >= result.longest_model_len


@SETTINGS
@given(requests())
def test_fitting_returns_the_longest_length_that_passes(request: PlanRequest) -> None:
    result = planned(replace(request, auto_fit_max_model_len=True))
    fitted = result.max_model_len
    assert isinstance(of_length(request, fitted), Plan)
    assert fitted <= request.max_model_len
    if fitted < request.max_model_len:
        assert isinstance(of_length(request, fitted + 1), TOO_LITTLE)


@SETTINGS
@given(requests())
def test_the_longest_length_of_a_plan_passes_and_the_next_does_not(request: PlanRequest) -> None:
    result = planned(request)
    if result.longest_model_len is None:
        assert isinstance(of_length(request, 2**48), Plan)
    else:
        assert result.longest_model_len >= result.max_model_len
        assert isinstance(of_length(request, result.longest_model_len), Plan)
        assert isinstance(of_length(request, result.longest_model_len + 1), TOO_LITTLE)


@settings(SETTINGS, max_examples=SETTINGS.max_examples * 3 // 2)
@given(requests())
def test_the_length_that_a_refusal_estimates_passes_and_the_next_does_not(request: PlanRequest) -> None:
    refusal = of_length(request, request.max_model_len)
    assume(isinstance(refusal, InsufficientMemory))
    assert isinstance(refusal, InsufficientMemory)
    estimate = refusal.figures["longest_model_len"]
    assert 0 <= estimate < request.max_model_len
    assert isinstance(of_length(request, estimate + 1), TOO_LITTLE)
    if estimate:
        assert not isinstance(of_length(request, estimate), TOO_LITTLE)


@settings(SETTINGS, max_examples=SETTINGS.max_examples * 3 // 2)
@given(requests(with_override=False))
def test_the_memory_that_a_refusal_asks_for_is_enough_and_a_byte_less_is_not(request: PlanRequest) -> None:
    refusal = of_length(request, request.max_model_len)
    assume(isinstance(refusal, InsufficientMemory))
    assert isinstance(refusal, InsufficientMemory)
    rank = refusal.figures["rank"]
    missing = refusal.figures["needed_bytes"] - refusal.figures["available_bytes"]
    assert missing > 0
    for more, is_enough in ((missing, True), (missing - 1, False)):
        ranks = list(request.ranks)
        ranks[rank] = replace(ranks[rank], available_bytes=ranks[rank].available_bytes + more)
        again = of_length(replace(request, ranks=ranks), request.max_model_len)
        still_refused = isinstance(again, InsufficientMemory) and again.figures["rank"] == rank
        assert still_refused is not is_enough


@SETTINGS
@given(requests())
def test_a_request_of_full_length_fits_beside_the_null_block(request: PlanRequest) -> None:
    result = planned(request)
    for rank in result.ranks:
        if rank.placement.bytes_per_block:
            workload = request.workload(result.max_model_len)
            needed = sum(group.max_blocks(workload) for group in rank.placement.device_groups)
            assert needed + 1 <= result.num_blocks
    if result.host_pool is not None:
        assert num_request_blocks(result, on_host=True) + 2 <= result.host_pool.num_blocks


@SETTINGS
@given(requests(roomy=True))
def test_the_capacity_takes_all_blocks_of_the_scarcer_pool(request: PlanRequest) -> None:
    result = planned(request)
    pools = [(result.num_blocks, num_request_blocks(result, on_host=False))]
    if result.host_pool is not None:
        pools.append((result.host_pool.num_blocks, num_request_blocks(result, on_host=True)))
    pools = [(num_blocks, needed) for num_blocks, needed in pools if needed]
    if not pools:
        assert result.capacity is None
        return
    assert result.capacity is not None
    assert all(
        math.isclose(result.capacity.max_concurrency * needed, num_blocks)
        or result.capacity.max_concurrency * needed < num_blocks
        for num_blocks, needed in pools
    )
    assert any(math.isclose(result.capacity.max_concurrency * needed, n) for n, needed in pools)
    exact = min(num_blocks * result.max_model_len // needed for num_blocks, needed in pools)
    assert exact - 1 <= result.capacity.num_tokens <= exact


@SETTINGS
@given(requests(roomy=True))
def test_every_group_ends_a_block_where_scheduling_steps(request: PlanRequest) -> None:
    result = planned(request)
    groups = list(result.grouping.groups)
    if groups:
        lcm, _ = lcm_and_gcd(groups, request.parallel.decode_context)
        assert result.block_sizes.scheduler == lcm
    else:
        assert result.block_sizes.scheduler == request.block_size


@SETTINGS
@given(requests(roomy=True))
def test_block_hashes_stand_for_whole_parts_of_all_blocks_that_can_be_found(request: PlanRequest) -> None:
    result = planned(request)
    groups = list(result.grouping.groups)
    assert result.block_sizes.scheduler % result.block_sizes.hash == 0
    keeps_no_ends = any(isinstance(g.form, Mamba) and g.form.mamba_cache_mode != "align" for g in groups)
    if not groups or not request.enable_prefix_caching or (keeps_no_ends and len(groups) > 1):
        assert result.block_sizes.hash == result.block_sizes.scheduler
        return
    found = [group for group in groups if group.prefix_cacheable] or groups
    _, gcd = lcm_and_gcd(found, request.parallel.decode_context)
    assert gcd % result.block_sizes.hash == 0
    assert result.block_sizes.hash == (request.prefix_match_unit or gcd)
