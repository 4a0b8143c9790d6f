"""Recurrent layers in the slots of latent ones, and tails in those of indexers."""

from typing import Any

import pytest

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import (
    IncompatiblePageSizes,
    PipelineStageWithoutMla,
    PlanError,
    StatePageTooLarge,
)
from blockyard.planning.groups import Group
from blockyard.planning.layers import KpoolTail, Layer, Mamba
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.planner import Plan
from planning.make_layers import (
    bytes_per_block,
    groups_of,
    layer_of,
    make_full,
    make_indexer,
    make_mamba,
    make_mla,
    make_plan,
    names_of,
    offset_of,
    tensor_of,
    tensors_of,
)

LATENT = range(3, 45, 4)
"""Of 45 layers every fourth is latent, 11 in all; the 34 others are recurrent."""

MLA_PAGE = 1024 * 576 * 2
INDEXER_PAGE = 1024 // 16 * 132
BLOCK_BYTES = 11 * (MLA_PAGE + INDEXER_PAGE)

NUM_STATES = 1 + 2
"""That a request holds of a recurrent group: the running one, and two for drafts."""


def make_linear_model(
    state: Mamba | None = None, *, pool: int = 16, has_tails: bool = False
) -> dict[str, Layer]:
    """Layers by number; an indexer keeps one state for ``pool`` tokens, and a tail the last ``pool`` keys."""
    layers: dict[str, Layer] = {}
    for number in range(45):
        if number not in LATENT:
            layers[f"layers.{number}.linear"] = make_mamba() if state is None else state
            continue
        layers[f"layers.{number}.mla"] = make_mla(block_size=1024, dtype="bfloat16")
        layers[f"layers.{number}.indexer"] = make_indexer(block_size=1024, tokens_per_state=pool)
        if has_tails:
            layers[f"layers.{number}.tail"] = make_tail(pool)
    return layers


def make_tail(pool: int) -> KpoolTail:
    return KpoolTail(
        block_size=pool, num_kv_heads=2, head_size=128, head_size_v=0, dtype="bfloat16", sliding_window=pool
    )


def number_of(name: str) -> int:
    return int(name.split(".")[1])


def on_stage(layers: dict[str, Layer], numbers: range) -> dict[str, Layer]:
    return {name: layer for name, layer in layers.items() if number_of(name) in numbers}


def make_linear_plan(layers: dict[str, Layer] | None = None, **asked: Any) -> Plan:
    """A plan with room for a hundred blocks, and one byte."""
    request = {"max_model_len": 8192, "available_bytes": 100 * BLOCK_BYTES + 1, **asked}
    return make_plan(make_linear_model() if layers is None else layers, **request)


def state_groups(plan: Plan, rank: int = 0) -> list[Group]:
    return [group for group in groups_of(plan, rank) if isinstance(group.form, Mamba)]


def num_states(plan: Plan, rank: int = 0) -> list[int]:
    """Layers of each recurrent group."""
    return [len(group.layers) for group in state_groups(plan, rank)]


# Groups


def test_states_are_shared_out_over_as_few_groups_as_find_a_slot_each() -> None:
    # 34 states in 11 slots take 4 groups, filled in turn.
    plan = make_linear_plan()
    assert len(names_of(plan)) == 5
    assert len(names_of(plan)[0]) == 22
    assert num_states(plan) == [9, 9, 8, 8]
    recurrent = [name for name in make_linear_model() if name.endswith("linear")]
    assert [list(group.layers) for group in state_groups(plan)] == [recurrent[i::4] for i in range(4)]


def test_states_are_padded_to_the_page_that_they_share() -> None:
    assert layer_of(make_linear_plan(), "layers.0.linear") == make_mamba(page_size_padded=MLA_PAGE)


def test_states_that_come_padded_are_padded_anew() -> None:
    plan = make_linear_plan(make_linear_model(make_mamba(page_size_padded=294_912)))
    assert num_states(plan) == [9, 9, 8, 8]
    assert {group.form.page_bytes for group in state_groups(plan)} == {MLA_PAGE}
    assert plan.num_blocks == 100
    assert len(tensors_of(plan)) == 56


# Memory


def test_a_block_costs_latent_and_indexer_pages_alone() -> None:
    plan = make_linear_plan()
    assert bytes_per_block(plan) == BLOCK_BYTES
    assert plan.num_blocks == 100
    assert {tensor.size for tensor in tensors_of(plan)} == {100 * BLOCK_BYTES}


def test_each_layer_has_a_tensor_of_dense_pages() -> None:
    plan = make_linear_plan()
    assert len(tensors_of(plan)) == 45 + 11
    for tensor in tensors_of(plan):
        assert len(tensor.layers) == 1
        page = INDEXER_PAGE if tensor.layers[0].endswith("indexer") else MLA_PAGE
        assert (tensor.block_stride, tensor.layer_stride) == (page, 100 * page)


def test_the_states_of_all_groups_lie_where_the_latent_layers_of_their_rank_do() -> None:
    plan = make_linear_plan()
    for place, number in enumerate(LATENT):
        assert offset_of(plan, f"layers.{number}.mla") == place * 100 * MLA_PAGE
        for group in state_groups(plan):
            for name in list(group.layers)[place : place + 1]:
                assert offset_of(plan, name) == place * 100 * MLA_PAGE


def test_indexers_lie_behind_all_latent_layers() -> None:
    plan = make_linear_plan()
    for place, number in enumerate(LATENT):
        offset = 100 * (11 * MLA_PAGE + place * INDEXER_PAGE)
        assert offset_of(plan, f"layers.{number}.indexer") == offset


@pytest.mark.parametrize("layout", Layout)
def test_slots_are_dense_regions_in_every_layout(layout: Layout) -> None:
    assert tensors_of(make_linear_plan(layout=layout)) == tensors_of(make_linear_plan())


def test_a_request_holds_blocks_of_its_tokens_and_of_each_groups_states() -> None:
    # 8,192 tokens in blocks of 1,024, and four groups of states.
    plan = make_linear_plan()
    assert plan.capacity is not None
    assert plan.capacity.max_concurrency == 100 / (8 + 4 * NUM_STATES)


def test_the_longest_request_gets_what_the_states_leave() -> None:
    # 99 blocks beside the null block, 12 of them for states: 87 for tokens.
    assert make_linear_plan().longest_model_len == 87 * 1024


# Tails


def make_tailed_plan(**asked: Any) -> Plan:
    """Pools of four tokens: 1,024 / 4 * 132 bytes an indexer's page, and 4 * 2 * 128 * 2 a tail's."""
    block_bytes = 11 * (MLA_PAGE + 256 * 132)
    return make_linear_plan(
        make_linear_model(pool=4, has_tails=True), **{"available_bytes": 100 * block_bytes + 1, **asked}
    )


def test_tails_are_a_group_padded_to_the_indexers_page() -> None:
    plan = make_tailed_plan()
    tails = groups_of(plan)[1]
    assert list(tails.layers) == [f"layers.{number}.tail" for number in LATENT]
    assert not tails.prefix_cacheable
    assert layer_of(plan, "layers.3.tail") == make_tail(4).but(page_size_padded=256 * 132)
    assert num_states(plan) == [9, 9, 8, 8]


def test_tails_cost_no_memory_of_their_own() -> None:
    plan = make_tailed_plan()
    assert bytes_per_block(plan) == 11 * (MLA_PAGE + 256 * 132)
    assert plan.num_blocks == 100
    assert len(tensors_of(plan)) == 45 + 11 + 11
    for number in LATENT:
        assert offset_of(plan, f"layers.{number}.tail") == offset_of(plan, f"layers.{number}.indexer")


def test_tails_cost_a_request_one_block() -> None:
    plan = make_tailed_plan()
    assert plan.capacity is not None
    assert plan.capacity.max_concurrency == 100 / (8 + 4 * NUM_STATES + 1)


def test_the_few_tokens_of_a_tail_do_not_make_hashes_finer() -> None:
    # Latent blocks of 1,024, states every 16: 16 is their common divisor, and the tail's 4 is left out.
    layers = make_linear_model(make_mamba(mamba_cache_mode="align"), pool=4, has_tails=True)
    sizes = make_linear_plan(layers, available_bytes=2**40, mamba_cache_mode="align").block_sizes
    assert (sizes.scheduler, sizes.hash) == (1024, 16)


def test_a_tail_larger_than_an_indexers_page_is_refused() -> None:
    # 16 * 2 * 128 * 2 = 8,192 bytes, and 1,024 / 32 * 132 = 4,224.
    layers = make_linear_model(pool=32) | {"layers.3.tail": make_tail(16)}
    with pytest.raises(StatePageTooLarge, match=r"the tail takes 8192 bytes") as refusal:
        make_linear_plan(layers)
    assert refusal.value.figures == {"state_bytes": 8192, "page_size_bytes": 4224}


def test_a_tail_without_an_indexer_to_lie_in_is_refused() -> None:
    layers = make_linear_model(pool=4, has_tails=True) | {"layers.44.tail": make_tail(4)}
    with pytest.raises(PlanError):
        make_linear_plan(layers)


# What does not fit


def test_a_state_larger_than_a_latent_page_is_refused() -> None:
    state = make_mamba(shapes=((512, 1024),), dtypes=("float32",))
    with pytest.raises(StatePageTooLarge, match="use more tensor-parallel ranks, larger blocks") as refusal:
        make_linear_plan(make_linear_model(state))
    assert refusal.value.figures == {"state_bytes": 2**21, "page_size_bytes": MLA_PAGE}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"layers.3.mla": make_mla(block_size=1024)}, "one page size each"),
        (
            {"layers.3.indexer": make_indexer(block_size=1024, tokens_per_state=4)},
            "one page size each",
        ),
        ({"layers.0.linear": make_mamba(shapes=((4,),), dtypes=("float32",))}, "have to be alike"),
        (
            {
                f"layers.{number}.mla": make_mla(
                    block_size=1024, dtype="bfloat16", page_size_padded=MLA_PAGE + 4096
                )
                for number in LATENT
            },
            "one block size and one page size each, unpadded",
        ),
        (
            {
                f"layers.{number}.indexer": make_indexer(block_size=512, tokens_per_state=8)
                for number in LATENT
            },
            "one block size and one page size each, unpadded",
        ),
    ],
    ids=["latent pages", "indexer pages", "states", "padding", "block sizes"],
)
def test_layers_that_differ_among_themselves_share_no_slots(changed: dict[str, Layer], sentence: str) -> None:
    with pytest.raises(IncompatiblePageSizes, match=sentence) as refusal:
        make_linear_plan(make_linear_model() | changed)
    assert changed.keys() <= refusal.value.figures["page_size_bytes"].keys()


def test_a_model_with_another_kind_of_layer_shares_no_slots() -> None:
    layers = make_linear_model() | {"layers.45.full": make_full(block_size=1024)}
    assert not make_linear_plan(layers, layout=Layout.BLNHC, available_bytes=2**40).grouping.shares_slots


# Stages of a pipeline


def test_a_stage_has_a_like_share_of_every_group() -> None:
    # Layers 0 to 22: 5 latent ones, and 18 states.
    layers = make_linear_model()
    plan = make_plan(
        on_stage(layers, range(23)),
        on_stage(layers, range(23, 45)),
        max_model_len=8192,
        available_bytes=[100 * 5 * (MLA_PAGE + INDEXER_PAGE) + 1, 2**40],
        parallel=Parallel(pipeline=2, pipeline_partition=(23, 22)),
    )
    assert plan.num_blocks == 100
    assert num_states(plan, 0) == [5, 5, 4, 4]
    assert bytes_per_block(plan, 0) == 5 * (MLA_PAGE + INDEXER_PAGE)
    assert bytes_per_block(plan, 1) == 6 * (MLA_PAGE + INDEXER_PAGE)
    assert {tensor.size for tensor in tensors_of(plan, 0)} == {100 * 5 * (MLA_PAGE + INDEXER_PAGE)}
    # The first slot holds a state of each group, the last those of the two groups with a fifth.
    assert {offset_of(plan, f"layers.{number}.linear") for number in (0, 1, 2, 4)} == {
        offset_of(plan, "layers.3.mla")
    }
    for number in (21, 22):
        assert offset_of(plan, f"layers.{number}.linear") == offset_of(plan, "layers.19.mla")


@pytest.mark.parametrize("ranks_have_all_layers", [True, False])
def test_there_are_more_groups_where_a_stage_has_few_slots(ranks_have_all_layers: bool) -> None:
    # 45 layers over 4 stages: 11, 11, 12, 11. The first has 2 latent layers and 9 states: 9 / 2 > 4.
    layers = make_linear_model()
    stages = Parallel(pipeline=4).stages(45)
    ranks = [layers if ranks_have_all_layers else on_stage(layers, stage) for stage in stages]
    plan = make_plan(*ranks, max_model_len=8192, available_bytes=2**40, parallel=Parallel(pipeline=4))
    groups = [group for group in plan.grouping.groups if isinstance(group.form, Mamba)]
    assert [len(group.layers) for group in groups] == [7, 7, 7, 7, 6]
    recurrent = [name for name in layers if name.endswith("linear")]
    assert [list(group.layers) for group in groups] == [recurrent[i::5] for i in range(5)]
    assert all(rank.placement.shares_slots for rank in plan.ranks)


def test_a_stage_with_states_and_no_slot_is_refused() -> None:
    layers = make_linear_model()
    with pytest.raises(PipelineStageWithoutMla, match="stage 0 has 3 recurrent layers") as refusal:
        make_plan(
            layers,
            layers,
            max_model_len=8192,
            available_bytes=2**40,
            parallel=Parallel(pipeline=2, num_hidden_layers=45, pipeline_partition=(3, 42)),
        )
    assert refusal.value.figures == {"stage": 0}
    assert "parallel.pipeline_partition" in str(refusal.value)


def test_a_refused_stage_is_counted_in_stages_whatever_the_ranks() -> None:
    layers = make_linear_model()
    first, last = on_stage(layers, range(44)), on_stage(layers, range(44, 45))
    with pytest.raises(PipelineStageWithoutMla) as refusal:
        make_plan(
            first,
            first,
            last,
            last,
            max_model_len=8192,
            available_bytes=2**40,
            parallel=Parallel(tensor=2, pipeline=2, pipeline_partition=(44, 1)),
        )
    assert refusal.value.figures == {"stage": 1}


def test_a_stage_is_told_by_the_one_number_in_a_layers_name() -> None:
    layers = make_linear_model()
    layers["layers.3.expert.0.linear"] = make_mamba()
    with pytest.raises(InvalidRequest, match="does not tell its layer's number"):
        make_linear_plan(layers, parallel=Parallel(pipeline=2))


def test_a_stage_without_recurrent_layers_needs_none() -> None:
    layers = make_linear_model()
    first, last = (
        on_stage(layers, range(3, 4)),
        {**on_stage(layers, range(3)), **on_stage(layers, range(4, 45))},
    )
    plan = make_plan(
        first,
        last,
        max_model_len=8192,
        available_bytes=2**40,
        parallel=Parallel(pipeline=2),
    )
    assert num_states(plan, 0) == [0, 0, 0, 0]
    assert [tensor.layers for tensor in tensors_of(plan, 0)] == [["layers.3.mla"], ["layers.3.indexer"]]
    assert tensor_of(plan, "layers.7.mla", 1).offset == 0


def test_groups_are_as_many_as_every_stage_needs_at_once() -> None:
    state, mla, indexer = (
        make_mamba(),
        make_mla(block_size=1024),
        make_indexer(block_size=1024, tokens_per_state=4),
    )
    # In turn, two of the first stage's four states would share a group of fewer than four.
    first = {f"layers.{n}.linear": state for n in (0, 2, 4, 6)}
    second = {f"layers.{n}.linear": state for n in (1, 3, 5)}
    for number, share in ((7, first), (8, second)):
        share |= {f"layers.{number}.mla": mla, f"layers.{number}.indexer": indexer}  # type: ignore[dict-item]
    plan = make_plan(first, second, available_bytes=2**34)
    for rank in range(2):
        states = [group for group in groups_of(plan, rank) if isinstance(group.form, Mamba)]
        assert max(len(group.layers) for group in states) == 1


def test_tails_of_two_block_sizes_share_no_slots() -> None:
    layers = make_linear_model(pool=4, has_tails=True) | {"layers.3.tail": make_tail(8)}
    with pytest.raises(IncompatiblePageSizes, match="have to be alike"):
        make_linear_plan(layers)
