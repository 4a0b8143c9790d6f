"""The parts of ``blockyard plan``: sizes, abbreviations, lines, bars, the curve, options."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.planning.layers import FullAttention, Layer, MlaAttention, SlidingWindow
from blockyard.planning.layouts import Layout
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest, Rank, SparseHost
from blockyard.server.commands.plan.abbreviations import (
    group_digits,
    layer_names,
    number_ranges,
    rank_name,
    size_at_least,
)
from blockyard.server.commands.plan.bars import columns
from blockyard.server.commands.plan.figures import Curve, curve_of, requests_at_a_time, show_requests
from blockyard.server.commands.plan.option_types import PARTS, parse_size
from blockyard.server.commands.plan.options import FIELD_OPTIONS
from blockyard.server.commands.plan.tables import fill
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


def curve(of: Plan, maximum: int | None = None) -> Curve:
    found = curve_of(of, maximum)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("80GiB", 80 * 2**30),
        ("80 GiB", 80 * 2**30),
        ("80GB", 80 * 10**9),
        ("80gib", 80 * 2**30),
        ("80gb", 80 * 10**9),
        ("80Gb", 80 * 10**9),
        ("1KB", 1000),
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
        ("80G", "'80G': write GiB for 1024^3 bytes, or GB for 1000^3"),
        ("80gi", "'80gi': write GiB for 1024^3 bytes, or GB for 1000^3"),
        ("80k", "write KiB for 1024^1 bytes, or KB for 1000^1"),
        ("80", "80 is 80 bytes: 80GiB? For so few bytes write 80B"),
        ("1048575", "1048575 is 1048575 bytes: 1048575GiB?"),
        ("80XB", "'XB' is no unit: write B, kB, MB"),
        ("1.5", "1.5 is 1.5 bytes: 1.5GiB?"),
        ("9" * 5000, "is no size"),
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
    assert drawn.concurrency[here] == requests_at_a_time(planned, 1024)


@pytest.mark.parametrize("max_model_len", [48, 1000])
def test_the_curve_agrees_with_plans_for_other_lengths(max_model_len: int) -> None:
    planned = make_plan(window=64)
    other = plan(replace(planned.request, max_model_len=max_model_len))
    drawn = curve(other)
    assert drawn.concurrency[drawn.lengths.index(max_model_len)] == requests_at_a_time(other, max_model_len)


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


def test_a_size_may_be_a_fraction_of_bytes() -> None:
    assert parse_size("71.9GiB") == Fraction(719 * 2**30, 10)


@given(st.integers(1, 2**45))
def test_a_size_that_is_said_to_be_enough_is_and_hardly_more(num_bytes: int) -> None:
    text, shown_bytes = size_at_least(num_bytes)
    assert int(parse_size(text)) == shown_bytes
    assert num_bytes <= shown_bytes <= num_bytes + max(2**10, num_bytes) // 5


@pytest.mark.parametrize(
    ("sentence", "grouped"),
    [
        ("rank 0: 131072 tokens need 17179869184.", "rank 0: 131,072 tokens need 17,179,869,184."),
        ("layer 'layers.10000.attn' of 999 bytes", "layer 'layers.10000.attn' of 999 bytes"),
        ("0.9 of 85899345920 bytes", "0.9 of 85,899,345,920 bytes"),
        ("float8_e4m3fn, sha2561234", "float8_e4m3fn, sha2561234"),
    ],
)
def test_long_numbers_in_a_sentence_are_grouped_and_names_are_not(sentence: str, grouped: str) -> None:
    assert group_digits(sentence) == grouped


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        (Fraction(90_111, 8192), "10.99 requests"),
        (Fraction(11), "11.00 requests"),
        (Fraction(1_234_567, 100), "12,345.67 requests"),
        (Fraction(1_999, 1_000), "1.99 requests"),
    ],
)
def test_requests_are_rounded_down(requests: Fraction, told: str) -> None:
    assert show_requests(requests) == told


@given(st.integers(1, 4096), st.integers(0, 1000))
def test_so_many_whole_requests_find_blocks_beside_the_null_block(length: int, window: int) -> None:
    planned = make_plan(window or None, max_model_len=4096)
    served = requests_at_a_time(planned, length)
    assert served is not None
    needed = sum(group.max_blocks(planned.request.workload(length)) for group in planned.grouping.groups)
    assert int(served) * needed <= planned.num_blocks - 1 < (int(served) + 1) * needed


def test_pages_on_the_host_bound_the_requests_too() -> None:
    sizes: dict[str, Any] = {"block_size": 64, "num_kv_heads": 1, "dtype": "bfloat16"}
    layers: dict[str, Layer] = {
        "layers.0.attn": MlaAttention(head_size=576, **sizes),
        "layers.0.indexer": MlaAttention(head_size=128, cache_role="indexer", **sizes),
    }
    host = SparseHost(host_pool_bytes=101 * 64 * 576 * 2, index_topk=64)
    request = PlanRequest(
        ranks=[Rank(available_bytes=2**32, layers=layers)],
        max_model_len=640,
        layout=Layout.BLHNC,
        sparse_host=host,
    )
    assert requests_at_a_time(plan(request), 640) == 10  # 10 pages each of 100, and the null block


def test_the_curve_ends_where_the_model_does() -> None:
    drawn = curve(make_plan(), 2000)
    assert drawn.lengths[-1] == 2000
    assert curve(make_plan(max_model_len=3000), 2000).lengths[-1] == 3000


@given(st.lists(st.text("ab.,/", min_size=1, max_size=30), max_size=8), st.integers(1, 40))
def test_lines_keep_to_the_width_and_lose_nothing(words: list[str], width: int) -> None:
    lines = fill(" ".join(words), width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(words)


def test_a_name_that_is_too_long_for_a_line_breaks_at_a_dot() -> None:
    assert fill("of model.layers.0.self_attn.attn", 20) == ["of", "model.layers.0.", "self_attn.attn"]
