"""At which lengths scheduling and hashing step."""

from typing import Any

import pytest

from blockyard.planning.block_sizes import BlockSizes
from blockyard.planning.errors import InvalidPrefixMatchUnit
from blockyard.planning.groups import Group, Layers
from blockyard.planning.layers import CircularBuffer, Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.planner import Plan
from planning.make_layers import make_full, make_indexer, make_mamba, make_mla, make_plan, make_window

TWO_SIZES = {"full": make_full(), "window": make_window(head_size=32, block_size=48)}
"""Tables of 16 and 48 tokens."""


def make_sized_plan(layers: Layers, **asked: Any) -> Plan:
    return make_plan(layers, layout=Layout.BLNHC, **asked)


def sizes_of(layers: Layers, **asked: Any) -> BlockSizes:
    return make_sized_plan(layers, **asked).block_sizes


# One group


@pytest.mark.parametrize("decode_context", [1, 4])
def test_a_single_group_steps_by_the_positions_of_one_block_on_all_ranks(decode_context: int) -> None:
    size = 16 * decode_context
    got = sizes_of({"full": make_full()}, parallel=Parallel(decode_context=decode_context))
    assert got == BlockSizes(scheduler=size, hash=size)


@pytest.mark.parametrize("layer", [make_full(dcp_sharded=False), make_mamba()])
def test_a_group_that_every_rank_keeps_whole_steps_by_its_own_blocks(layer: Layer) -> None:
    got = sizes_of({"layer": layer}, parallel=Parallel(decode_context=4))
    assert got == BlockSizes(scheduler=16, hash=16)


def test_a_model_without_layers_steps_by_the_block_size_asked() -> None:
    assert sizes_of({}, block_size=32) == BlockSizes(scheduler=32, hash=32)


@pytest.mark.parametrize("unit", [None, 16])
def test_a_single_group_takes_its_own_block_for_a_unit(unit: int | None) -> None:
    assert sizes_of({"full": make_full()}, prefix_match_unit=unit).hash == 16


@pytest.mark.parametrize("unit", [8, 32])
def test_a_single_group_takes_no_other_unit(unit: int) -> None:
    with pytest.raises(InvalidPrefixMatchUnit, match="hits end at whole blocks of 16") as refusal:
        sizes_of({"full": make_full()}, prefix_match_unit=unit)
    assert refusal.value.figures == {"prefix_match_unit": unit, "block_sizes": [16]}


def test_a_unit_does_not_matter_where_nothing_is_hashed() -> None:
    got = sizes_of({"full": make_full()}, prefix_match_unit=8, enable_prefix_caching=False)
    assert got == BlockSizes(scheduler=16, hash=16)


# A table's entries


@pytest.mark.parametrize(
    ("layers", "num_tokens"),
    [
        ([make_full()], 64),
        ([make_full(), make_full(head_size=128)], 64),
        ([make_mamba()], 16),
        ([make_mamba(), make_mamba()], 16),
    ],
)
def test_an_entry_stands_for_a_block_on_each_rank_that_shares_the_positions(
    layers: list[Layer], num_tokens: int
) -> None:
    group = Group.of({f"layer.{number}": layer for number, layer in enumerate(layers)})
    assert group.table_block_size(4) == num_tokens


# Several groups


def test_several_groups_schedule_by_the_multiple_and_hash_by_the_divisor() -> None:
    assert sizes_of(TWO_SIZES) == BlockSizes(scheduler=48, hash=16)


def test_nothing_is_hashed_finer_where_nothing_is_hashed_at_all() -> None:
    assert sizes_of(TWO_SIZES, enable_prefix_caching=False) == BlockSizes(scheduler=48, hash=48)


@pytest.mark.parametrize("unit", [1, 2, 8, 16])
def test_a_unit_that_divides_all_blocks_is_taken(unit: int) -> None:
    assert sizes_of(TWO_SIZES, prefix_match_unit=unit).hash == unit


@pytest.mark.parametrize("unit", [3, 32, 48])
def test_a_unit_that_does_not_divide_all_blocks_is_refused(unit: int) -> None:
    with pytest.raises(InvalidPrefixMatchUnit, match="leave it out for the finest unit") as refusal:
        sizes_of(TWO_SIZES, prefix_match_unit=unit)
    assert refusal.value.figures == {"prefix_match_unit": unit, "block_sizes": [16, 48]}


def test_blocks_that_are_never_found_do_not_make_hashes_finer() -> None:
    buffer = CircularBuffer(block_size=4, num_kv_heads=1, head_size=64, head_size_v=0, dtype="float16")
    assert sizes_of({"full": make_full(), "buffer": buffer}) == BlockSizes(scheduler=16, hash=16)


def test_positions_spread_over_ranks_make_blocks_larger() -> None:
    layers = {"full": make_full(), "draft": make_full(dcp_sharded=False)}
    got = sizes_of(layers, parallel=Parallel(decode_context=4))
    assert got == BlockSizes(scheduler=64, hash=16)


# States


@pytest.mark.parametrize(("mode", "hash_size"), [("none", 64), ("all", 64), ("align", 16)])
def test_hits_are_finer_than_scheduling_only_where_states_are_kept_at_blocks_ends(
    mode: str, hash_size: int
) -> None:
    layers = {"full": make_full(), "state": make_mamba(block_size=64, mamba_cache_mode=mode)}
    got = sizes_of(layers, mamba_cache_mode=mode)
    assert got == BlockSizes(scheduler=64, hash=hash_size)


@pytest.mark.parametrize("mode", ["none", "align", "all"])
def test_a_layer_and_a_plan_that_say_the_same_mode_are_not_warned_of(mode: str) -> None:
    layers = {"full": make_full(), "state": make_mamba(mamba_cache_mode=mode)}
    assert make_sized_plan(layers, mamba_cache_mode=mode).grouping.warnings == []


def test_a_layer_and_a_plan_that_say_different_modes_are_warned_of() -> None:
    layers = {"full": make_full(), "state": make_mamba(mamba_cache_mode="align")}
    (warning,) = make_sized_plan(layers, mamba_cache_mode="none").grouping.warnings
    assert "layers say mamba_cache_mode 'align' and the plan counts their states for 'none'" in warning


def test_each_mode_that_differs_is_warned_of() -> None:
    layers = {
        "state.0": make_mamba(mamba_cache_mode="align"),
        "state.1": make_mamba(mamba_cache_mode="all"),
        "full": make_full(),
    }
    warnings = make_sized_plan(layers).grouping.warnings
    assert [warning.split("'")[1] for warning in warnings] == ["align", "all"]


# States that stand for several tokens


def make_pooled_model(pool: int, **more: Layer) -> dict[str, Layer]:
    """Latent blocks of 64 tokens, an indexer with a state for ``pool`` of them, and others' blocks of 16."""
    indexer = make_indexer(block_size=64, tokens_per_state=pool)
    return {
        "mla": make_mla(block_size=64),
        "indexer": indexer,
        "window": make_window(dcp_sharded=False),
        **more,
    }


def test_hits_at_whole_blocks_end_at_whole_states() -> None:
    assert sizes_of(make_pooled_model(64)) == BlockSizes(scheduler=64, hash=16)


def test_hits_inside_blocks_have_to_end_at_whole_states() -> None:
    state = make_mamba(block_size=64, mamba_cache_mode="align")
    with pytest.raises(InvalidPrefixMatchUnit, match="would end inside a state") as refusal:
        sizes_of(make_pooled_model(64, state=state), mamba_cache_mode="align")
    assert refusal.value.figures["prefix_match_unit"] is None
    assert sorted(refusal.value.figures["block_sizes"]) == [16, 64, 64]


@pytest.mark.parametrize(("decode_context", "is_refused"), [(1, False), (2, True)])
def test_a_states_block_as_large_as_the_unit_ends_inside_others_where_positions_are_spread(
    decode_context: int, is_refused: bool
) -> None:
    layers = make_pooled_model(32, state=make_mamba(mamba_cache_mode="align"))
    asked = {"mamba_cache_mode": "align", "parallel": Parallel(decode_context=decode_context)}
    if not is_refused:
        assert sizes_of(layers, **asked).hash == 16
        return
    with pytest.raises(InvalidPrefixMatchUnit):
        sizes_of(layers, **asked)
