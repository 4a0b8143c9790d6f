"""The six layouts: strides worked by hand, which plans each can express, and that no two bytes meet.

The small layer has three heads and blocks of two tokens; key and value of a head are 8 bytes:

    page = 3 heads * 2 states * 8 bytes = 48 bytes
"""

from itertools import pairwise, product
from typing import Any

import pytest

from blockyard.planning.errors import LayoutCannotExpress
from blockyard.planning.groups import Layers
from blockyard.planning.layers import FullAttention, Layer
from blockyard.planning.layouts import Inexpressible, Layout, Strides, View
from blockyard.planning.parallel import Parallel
from blockyard.planning.placement import view
from blockyard.planning.planner import Plan
from planning.make_layers import (
    PAGE_BYTES,
    groups_of,
    layer_of,
    make_full,
    make_indexer,
    make_mla,
    make_plan,
    make_window,
    tensor_of,
    tensors_of,
)

SMALL: dict[str, Any] = {"block_size": 2, "num_kv_heads": 3, "head_size": 1, "dtype": "float32"}


def make_small(**sizes: Any) -> FullAttention:
    return FullAttention(**{**SMALL, **sizes})


def strides_of(layout: Layout, layer: Layer) -> Strides:
    """Of two layers and five blocks."""
    return layout.strides(layer, num_layers=2, num_blocks=5)


# Strides


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        # From the right: 8 bytes a state, 2 states a head, 3 heads a block, 5 blocks a layer.
        (Layout.LBHNC, Strides(layer=240, block=48, head=16, state=8)),
        # 8 bytes a head, 3 heads a state, 2 states a block, 5 blocks a layer.
        (Layout.LBNHC, Strides(layer=240, block=48, head=8, state=24)),
        # 2 states of a head are 16 bytes of a block, 5 blocks are a head's 80, 3 heads a layer's 240.
        (Layout.LHBNC, Strides(layer=240, block=16, head=80, state=8)),
        # A page as in LBHNC, then 2 layers a block.
        (Layout.BLHNC, Strides(layer=48, block=96, head=16, state=8)),
        # A page as in LBNHC, then 2 layers a block.
        (Layout.BLNHC, Strides(layer=48, block=96, head=8, state=24)),
        # 2 states of a head are 16 bytes of a layer, 2 layers are a head's 32, 3 heads a block's 96.
        (Layout.BHLNC, Strides(layer=16, block=96, head=32, state=8)),
    ],
)
def test_strides_multiply_from_the_innermost_dimension(layout: Layout, strides: Strides) -> None:
    assert strides_of(layout, make_small()) == strides


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        (Layout.LBHNC, Strides(layer=320, block=64, head=16, state=8)),
        (Layout.LBNHC, Strides(layer=320, block=64, head=8, state=24)),
        (Layout.BLHNC, Strides(layer=64, block=128, head=16, state=8)),
        (Layout.BLNHC, Strides(layer=64, block=128, head=8, state=24)),
    ],
)
def test_padding_comes_after_a_page_and_leaves_its_inside_alone(layout: Layout, strides: Strides) -> None:
    assert strides_of(layout, make_small(page_size_padded=64)) == strides


@pytest.mark.parametrize("layout", [Layout.LHBNC, Layout.BHLNC])
def test_a_page_in_several_pieces_cannot_be_padded(layout: Layout) -> None:
    with pytest.raises(Inexpressible):
        strides_of(layout, make_small(page_size_padded=64))


@pytest.mark.parametrize("layout", [Layout.LHBNC, Layout.BHLNC])
def test_a_page_of_one_head_is_in_one_piece_in_every_layout(layout: Layout) -> None:
    # 16 bytes of content, 64 with padding.
    strides = strides_of(layout, make_small(num_kv_heads=1, page_size_padded=64))
    assert {strides.block, strides.layer} == ({64, 320} if layout is Layout.LHBNC else {64, 128})


def test_a_block_can_be_wider_than_its_layers() -> None:
    strides = Layout.BLNHC.strides(make_small(), num_layers=2, num_blocks=5, block_stride=200)
    assert strides == Strides(layer=48, block=200, head=8, state=24)


@pytest.mark.parametrize("layout", Layout)
def test_every_byte_of_every_page_has_a_place_of_its_own(layout: Layout) -> None:
    layer = make_small()
    strides = strides_of(layout, layer)
    places = {
        number * strides.layer + block * strides.block + head * strides.head + state * strides.state + byte
        for number, block, head, state, byte in product(range(2), range(5), range(3), range(2), range(8))
    }
    assert places == set(range(2 * 5 * 48))


@pytest.mark.parametrize(
    ("layout", "is_block_outermost", "keeps_pages_whole"),
    [
        (Layout.LBHNC, False, True),
        (Layout.LBNHC, False, True),
        (Layout.LHBNC, False, False),
        (Layout.BLHNC, True, True),
        (Layout.BLNHC, True, True),
        (Layout.BHLNC, True, False),
    ],
)
def test_a_layout_tells_what_it_keeps_together(
    layout: Layout, is_block_outermost: bool, keeps_pages_whole: bool
) -> None:
    assert layout.is_block_outermost is is_block_outermost
    assert layout.keeps_pages_whole is keeps_pages_whole


# What each can express

EQUAL_PAGES = {"full": make_full(), "window": make_window()}
TWO_SIZES_ONE_TABLE = {"wide": make_full(head_size=128), "narrow": make_full()}
TWO_SIZES_TWO_TABLES = {"full": make_full(), "window": make_window(head_size=32)}
SIZES_THAT_DO_NOT_DIVIDE = {"full": make_full(), "window": make_window(head_size=96)}
LATENT_SIZES_AND_A_WINDOW = {"mla": make_mla(), "indexer": make_indexer(), "window": make_window()}
PADDED_PAGES = {"first": make_full(page_size_padded=20_000), "second": make_full(page_size_padded=20_000)}

EVERY_LAYOUT = set(Layout)
WHOLE_PAGES = {layout for layout in Layout if layout.keeps_pages_whole}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    ("layers", "possible"),
    [
        pytest.param(EQUAL_PAGES, EVERY_LAYOUT, id="pages of one size"),
        pytest.param(TWO_SIZES_ONE_TABLE, WHOLE_PAGES, id="two sizes, one table"),
        # Layer by layer the smaller page becomes a larger block's; block by block both lie side by side.
        pytest.param(TWO_SIZES_TWO_TABLES, EVERY_LAYOUT - {Layout.BHLNC}, id="two sizes, two tables"),
        # Layer by layer the smaller page is padded, and padding needs whole pages.
        pytest.param(SIZES_THAT_DO_NOT_DIVIDE, WHOLE_PAGES, id="sizes that do not divide"),
        # Layer by layer the window is allocated like full attention, in the table of the others.
        pytest.param(LATENT_SIZES_AND_A_WINDOW, WHOLE_PAGES, id="latent sizes and a window"),
        pytest.param(PADDED_PAGES, WHOLE_PAGES, id="padded pages"),
    ],
)
def test_a_layout_expresses_what_its_order_allows(
    layout: Layout, layers: Layers, possible: set[Layout]
) -> None:
    if layout in possible:
        assert make_plan(layers, layout=layout).num_blocks > 1
        return
    with pytest.raises(LayoutCannotExpress, match="use BLHNC or BLNHC") as refusal:
        make_plan(layers, layout=layout)
    assert refusal.value.figures == {"layout": layout.value, "possible_layouts": ["BLHNC", "BLNHC"]}


@pytest.mark.parametrize("layout", [Layout.BLHNC, Layout.BLNHC])
@pytest.mark.parametrize(
    "layers",
    [
        EQUAL_PAGES,
        TWO_SIZES_ONE_TABLE,
        TWO_SIZES_TWO_TABLES,
        SIZES_THAT_DO_NOT_DIVIDE,
        LATENT_SIZES_AND_A_WINDOW,
        PADDED_PAGES,
    ],
)
def test_a_layout_that_a_refusal_names_expresses_everything(layout: Layout, layers: Layers) -> None:
    assert make_plan(layers, layout=layout).num_blocks > 1


# Views


def views_of(plan: Plan) -> dict[str, View]:
    return {
        name: view(tensor_of(plan, name), name, layer, plan.request.layout, plan.num_blocks)
        for group in groups_of(plan)
        for name, layer in group.layers.items()
    }


def bytes_of(seen: View) -> set[int]:
    """The places of all its bytes."""
    steps = [range(0, stride * size, stride) for size, stride in zip(seen.shape, seen.strides, strict=True)]
    return {seen.offset + sum(place) for place in product(*steps)}


def test_a_view_is_a_layers_blocks_heads_states_and_bytes() -> None:
    plan = make_plan({"first": make_small(), "second": make_small()}, available_bytes=20 * 96)
    seen = views_of(plan)["second"]
    assert seen == View(offset=20 * 48, shape=(20, 3, 2, 8), strides=(48, 8, 24, 1))


@pytest.mark.parametrize("layout", Layout)
def test_the_layers_of_a_group_share_no_byte_and_stay_inside_the_allocation(layout: Layout) -> None:
    layers = {
        **{f"full.{number}": make_small() for number in range(3)},
        **{f"window.{number}": make_window(**SMALL) for number in range(3)},
    }
    plan = make_plan(layers, layout=layout, max_model_len=4, available_bytes=10 * 3 * 48)
    views = views_of(plan)
    for group in groups_of(plan):
        places = [bytes_of(views[name]) for name in group.layers]
        assert sum(map(len, places)) == len(set().union(*places)) == 3 * 10 * 48
        assert max(map(max, places)) < tensors_of(plan)[0].size == 10 * 3 * 48


@pytest.mark.parametrize("layout", sorted(WHOLE_PAGES))
def test_layers_of_several_page_sizes_share_no_byte(layout: Layout) -> None:
    layers = {
        "wide.0": make_small(head_size=3),
        "narrow.0": make_small(),
        "wide.1": make_small(head_size=3),
        "narrow.1": make_small(),
    }
    plan = make_plan(layers, layout=layout, max_model_len=4, available_bytes=10 * 2 * (144 + 48))
    places = [bytes_of(seen) for seen in views_of(plan).values()]
    assert sum(map(len, places)) == len(set().union(*places)) == 10 * 2 * (144 + 48)
    assert set().union(*places) == set(range(tensors_of(plan)[0].size))


def test_where_heads_are_apart_a_block_is_one_heads_share_of_a_page() -> None:
    layers = {
        "full.0": make_full(),
        "full.1": make_full(),
        "window.0": make_window(sliding_window=32),
        "window.1": make_window(sliding_window=32),
    }
    plan = make_plan(layers, layout=Layout.LHBNC, available_bytes=4 * PAGE_BYTES * 8)
    assert plan.num_blocks == 16
    share = PAGE_BYTES // 2  # of one of two heads
    for tensor in tensors_of(plan):
        assert tensor.block_stride == share
        assert tensor.layer_stride == 2 * 16 * share
        # The second layer's second head's last block: after one layer, one head and 15 blocks.
        assert tensor.offset + tensor.layer_stride + 16 * share + 15 * share + share <= tensor.size


@pytest.mark.parametrize("has_draft", [False, True])
@pytest.mark.parametrize("indexer_alignment", [None, 512])
def test_blocks_begin_at_whole_rows_and_aligned_bytes(has_draft: bool, indexer_alignment: int | None) -> None:
    """Sparse kernels number the rows of a cache from its first byte, across blocks."""
    packed = {"state_content_bytes": 656, "block_stride_alignment": 656, "cache_dtype_str": "fp8_ds_mla"}
    layers: dict[str, Layer] = {
        "target": make_mla(block_size=64, dtype="uint8", is_index_group_leader=True, **packed),
        "indexer": make_indexer(
            block_size=64, cache_role="indexer", block_stride_alignment=indexer_alignment
        ),
    }
    if has_draft:
        layers["draft"] = make_window(
            block_size=64,
            num_kv_heads=64,
            dtype="bfloat16",
            sliding_window=2048,
            dcp_sharded=False,
        )
    plan = make_plan(
        layers,
        layout=Layout.BLHNC,
        max_model_len=1024,
        available_bytes=128 * 2**20,
        parallel=Parallel(decode_context=4),
    )
    views = views_of(plan)
    assert views["target"].shape[1:] == (1, 64, 656)
    assert views["target"].strides[0] % 656 == 0
    assert views["target"].strides[1:] == (64 * 656, 656, 1)
    assert views["indexer"].strides[0] % (indexer_alignment or 1) == 0


def test_a_block_is_as_wide_as_the_least_multiple_of_all_alignments() -> None:
    layers = {
        "first": make_full(head_size=16, block_stride_alignment=1000),
        "second": make_full(head_size=32, block_stride_alignment=600),
    }
    # 4,096 and 8,192 bytes are 12,288; the next multiple of lcm(1,000, 600) = 3,000 is 15,000.
    plan = make_plan(layers, layout=Layout.BLNHC)
    assert {tensor.block_stride for tensor in tensors_of(plan)} == {15_000}
    assert [tensor.offset for tensor in tensors_of(plan)] == [0, 4096]


def test_layers_are_told_apart_by_their_place_in_a_tensor() -> None:
    plan = make_plan({f"full.{number}": make_full() for number in range(4)}, available_bytes=64 * PAGE_BYTES)
    offsets = [seen.offset for seen in views_of(plan).values()]
    assert all(second - first == 16 * PAGE_BYTES for first, second in pairwise(offsets))


def test_a_page_that_is_padded_is_seen_with_its_content_alone() -> None:
    plan = make_plan(SIZES_THAT_DO_NOT_DIVIDE)
    assert layer_of(plan, "full").page_bytes == make_window(head_size=96).page_bytes
    seen = views_of(plan)["full"]
    assert seen.shape == (plan.num_blocks, 2, 16, 512)
    assert seen.strides[0] == make_window(head_size=96).page_bytes


# What block owns which bytes


def test_heads_outside_blocks_are_for_groups_of_as_many_heads() -> None:
    few, many = make_window(num_kv_heads=2, head_size=64), make_full(num_kv_heads=4, head_size=32)
    assert few.page_bytes == many.page_bytes
    with pytest.raises(LayoutCannotExpress):
        make_plan({"few": few, "many": many}, layout=Layout.LHBNC)
    assert make_plan({"few": few, "many": many}, layout=Layout.BHLNC).num_blocks > 0


@pytest.mark.parametrize("layout", list(Layout))
def test_blocks_begin_aligned_where_a_layer_asks_for_it(layout: Layout) -> None:
    layers = {"plain": make_small(), "aligned": make_small(block_stride_alignment=512)}
    if layout.is_block_outermost:
        plan = make_plan(layers, layout=layout)
        assert all(tensor.block_stride % 512 == 0 for tensor in tensors_of(plan))
    else:
        with pytest.raises(LayoutCannotExpress, match="multiples of 512 bytes"):
            make_plan(layers, layout=layout)
