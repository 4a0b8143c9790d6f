"""The parts of ``blockyard plan``: sizes, abbreviations, bars, the curve, options."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.planning.layers import FullAttention, Layer, SlidingWindow
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest, Rank
from blockyard.server.commands.plan.bars import columns
from blockyard.server.commands.plan.curve import Curve, curve_of
from blockyard.server.commands.plan.field_option import PARTS
from blockyard.server.commands.plan.options import FIELD_OPTIONS
from blockyard.server.commands.plan.ranges import layer_names, number_ranges, rank_name
from blockyard.server.commands.plan.sizes import parse_size
from blockyard.server.plan_schemas import PlanBody

WITHOUT_OPTION = {
    ("workers", "layers"),  # a document's business: --request
    ("parallel", "num_hidden_layers"),  # follows from the configuration
}


def make_plan(window: int | None = None, max_model_len: int = 1024) -> Plan:
    """Two layers of 64 KiB a block each, in 64 MiB: of full attention, or the second with a window."""
    full = FullAttention(block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16")
    layers: dict[str, Layer] = {"layers.0": full, "layers.1": full}
    if window is not None:
        layers["layers.1"] = SlidingWindow(
            block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16", sliding_window=window
        )
    request = PlanRequest(
        ranks=[Rank(available_bytes=2**26, layers=layers)],
        max_model_len=max_model_len,
        max_in_flight_tokens=256,
    )
    return plan(request)


def curve(of: Plan) -> Curve:
    found = curve_of(of)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("80GiB", 80 * 2**30),
        ("80 GiB", 80 * 2**30),
        ("80GB", 80 * 10**9),
        ("512MiB", 512 * 2**20),
        ("1.5TiB", 3 * 2**39),
        ("0.1GB", 10**8),
        ("64kB", 64_000),
        ("64KiB", 65_536),
        ("1048576", 1_048_576),
        ("10B", 10),
        ("0", 0),
    ],
)
def test_a_size_is_so_many_bytes(text: str, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("80Gb", "'Gb' would be bits: write GiB for 1024^3 bytes, or GB for 1000^3"),
        ("80 Gb", "'Gb' would be bits"),
        ("80G", "write GiB for 1024^3 bytes, or GB for 1000^3"),
        ("80gib", "'80gib': write GiB"),
        ("80k", "write KiB for 1024^1 bytes, or kB for 1000^1"),
        ("80XB", "'XB' is no unit: write B, kB, MB"),
        ("1.5", "is not a whole number of bytes"),
        ("-1GiB", "write 80GiB, 80GB, 512MiB or a number of bytes"),
        ("GiB", "is no size"),
        ("", "is no size"),
        ("1e9", "is no size"),
        ("80GiB/s", "is no size"),
        ("1_000", "is no size"),
        ("nan", "is no size"),
    ],
)
def test_what_is_no_size_is_refused_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_size(text)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 1, 2, 7], "0-2,7"),
        ([5, 11, 17, 23], "5-23/6"),
        ([1, 4], "1,4"),
        ([0, 2, 3, 4, 9], "0,2-4,9"),
        ([3, 1, 2, 2], "1-3"),
    ],
)
def test_numbers_are_told_in_ranges(numbers: list[int], told: str) -> None:
    assert number_ranges(numbers) == told


def read_ranges(told: str) -> Iterator[int]:
    for part in told.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_hold_just_the_numbers_told(numbers: set[int]) -> None:
    assert list(read_ranges(number_ranges(numbers))) == sorted(numbers)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([f"model.layers.{n}.self_attn.attn" for n in range(61)], "model.layers.{0-60}.self_attn.attn"),
        (["h.0.attn", "h.1.attn", "h.0.mlp", "h.1.mlp"], "h.{0-1}.attn, h.{0-1}.mlp"),
        (["h.3.attn"], "h.3.attn"),
        (["conv1d", "conv2d"], "conv1d, conv2d"),  # no numbers of layers
        (["h.01.a", "h.02.a"], "h.01.a, h.02.a"),  # 1 and 2 would be other names
        (["h.0.e.0", "h.0.e.1", "h.1.e.0"], "h.{0-1}.e.0, h.0.e.1"),
        (
            [f"layer{letter}" for letter in "abcdefgh"],
            "layera, layerb, layerc, layerd, layere, layerf and 2 more",
        ),
        ([], ""),
    ],
)
def test_names_that_differ_in_a_number_are_told_once(names: list[str], told: str) -> None:
    assert layer_names(names) == told


def test_ranks_are_named_in_the_singular_and_in_the_plural() -> None:
    assert [rank_name([3]), rank_name([0, 1, 2, 5])] == ["rank 3", "ranks 0-2,5"]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=5), st.integers(1, 200))
def test_the_columns_of_a_bar_add_up_and_are_true_to_a_column_a_part(sizes: list[int], width: int) -> None:
    whole = max(1, sum(sizes))
    drawn = columns(sizes, whole, width)
    assert sum(drawn) == round(sum(sizes) * width / whole)
    assert all(column >= 0 for column in drawn)
    assert all(
        abs(column - size * width / whole) <= len(sizes) / 2 + 0.5
        for column, size in zip(drawn, sizes, strict=True)
    )


def test_the_curve_agrees_with_the_plan_at_its_own_length() -> None:
    planned = make_plan(window=64)
    drawn = curve(planned)
    here = drawn.lengths.index(1024)
    assert planned.capacity is not None
    assert drawn.concurrency[here] == planned.capacity.max_concurrency


@pytest.mark.parametrize("max_model_len", [48, 1000])
def test_the_curve_agrees_with_plans_for_other_lengths(max_model_len: int) -> None:
    planned = make_plan(window=64)
    other = plan(replace(planned.request, max_model_len=max_model_len))
    drawn = curve(other)
    assert other.capacity is not None
    assert drawn.concurrency[drawn.lengths.index(max_model_len)] == other.capacity.max_concurrency


def test_the_curve_goes_from_one_block_to_the_longest_request() -> None:
    planned = make_plan()
    drawn = curve(planned)
    assert (drawn.lengths[0], drawn.lengths[-1]) == (16, planned.longest_model_len)
    assert drawn.lengths == sorted(set(drawn.lengths))


def test_a_window_bounds_the_blocks_of_its_group_alone() -> None:
    drawn = curve(make_plan(window=64))
    blocks = dict(drawn.blocks)
    window = blocks["sliding_window, 16 tokens a block"]
    assert window[-1] == window[-2]
    assert blocks["full_attention, 16 tokens a block"][-1] > blocks["full_attention, 16 tokens a block"][-2]


def test_every_field_of_a_request_has_an_option() -> None:
    fields: set[tuple[str, ...]] = {(name,) for name in PlanBody.model_fields if name not in PARTS}
    fields |= {(part, name) for part, body in PARTS.items() for name in body.model_fields}
    assert {option.path for option in FIELD_OPTIONS} == fields - WITHOUT_OPTION


def test_options_tell_the_defaults_of_the_request() -> None:
    shown = {option.opts[0]: option.shown_default for option in FIELD_OPTIONS}
    assert (
        shown["--block-size"],
        shown["--utilization"],
        shown["--hybrid-groups"],
        shown["--gpu-memory"],
    ) == (
        "16",
        "0.9",
        "yes",
        None,
    )
