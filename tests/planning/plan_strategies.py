"""What Hypothesis draws for the planner: small models of every sort over ranks, and requests for them.

Pages are of a few bytes, so that a test can look at every byte of every block. Most layers of a model have
the sizes of one base, so that their pages often fit each other.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from blockyard.planning.groups import Layers
from blockyard.planning.layers import (
    LAYER_KINDS,
    MAMBA_CACHE_MODES,
    AttentionLayer,
    ChunkedLocalAttention,
    FullAttention,
    HiddenState,
    KpoolTail,
    KvQuantMode,
    Layer,
    Mamba,
    MlaAttention,
    SinkFullAttention,
    SlidingWindow,
    SlidingWindowMla,
)
from blockyard.planning.layouts import Layout
from blockyard.planning.parallel import Parallel
from blockyard.planning.request import PlanRequest, Rank, SparseHost, Speculative, TensorForm

rarely = st.sampled_from([False] * 7 + [True])
often = st.sampled_from([True] * 3 + [False])
lengths = st.integers(1, 64)
windows = st.sampled_from([1, 4, 5, 12])


@dataclass(frozen=True, kw_only=True)
class Base:
    """Sizes that most layers of a model have."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: str

    @property
    def page_bytes(self) -> int:
        return FullAttention(**self.sizes).page_bytes

    @property
    def sizes(self) -> dict[str, Any]:
        return {
            "block_size": self.block_size,
            "num_kv_heads": self.num_kv_heads,
            "head_size": self.head_size,
            "dtype": self.dtype,
        }


bases = st.builds(
    Base,
    block_size=st.sampled_from([1, 2, 4, 4, 8]),
    num_kv_heads=st.sampled_from([1, 2, 2, 3]),
    head_size=st.sampled_from([1, 2, 4]),
    dtype=st.sampled_from(["uint8", "bfloat16"]),
)


def padded(draw: st.DrawFn, layer: Layer) -> Layer:
    """``layer``, now and then with a page that is padded."""
    num_more = draw(st.sampled_from([None] * 9 + [0, 1, 8]))
    if num_more is None:
        return layer
    return layer.but(page_size_padded=layer.page_bytes + num_more)


OTHER_SIZES: list[dict[str, Any]] = [
    *({"block_size": size} for size in (1, 3, 8, 16)),
    *({"num_kv_heads": heads} for heads in (1, 4, 5)),
    *({"head_size": size} for size in (1, 3, 8)),
    {"num_kv_heads": 4, "head_size": 1},
    {"num_kv_heads": 1, "head_size": 4},
    {"block_size": 3, "head_size": 3},
    {"head_size_v": 5},
    {"dtype": "float32"},
    {"num_head_slots": 2},
    {"state_content_bytes": 7},
    {"block_stride_alignment": 8},
    {"block_stride_alignment": 6},
    {"max_tp_shards": 1},
    {"dcp_sharded": False},
    {"kv_quant_mode": KvQuantMode.FP8_PER_TOKEN_HEAD},
    {"kv_quant_mode": KvQuantMode.NVFP4, "head_size": 16},
]


@st.composite
def attention_layers(draw: st.DrawFn, kind: type[AttentionLayer], base: Base) -> Layer:
    """A layer of ``kind`` that differs from ``base`` in a size at most, and rarely in more."""
    given = {**base.sizes, **draw(st.sampled_from([{}] * 8 + OTHER_SIZES))}
    if issubclass(kind, SlidingWindow):
        given["sliding_window"] = draw(windows)
    elif issubclass(kind, ChunkedLocalAttention):
        given["attention_chunk_size"] = draw(windows)
    elif kind is SinkFullAttention:
        given["sink_len"] = draw(st.sampled_from([None, 0, 3]))
    if issubclass(kind, MlaAttention | SlidingWindowMla):
        given["head_size_v"] = 0
        given |= draw(st.sampled_from([{}] * 5 + [{"cache_dtype_str": "auto"}, {"alignment": 8}]))
    if issubclass(kind, MlaAttention):
        given["non_causal_multi_token_decode"] = draw(rarely)
    return padded(draw, kind(**given))


@st.composite
def states(draw: st.DrawFn, base: Base) -> Mamba:
    """A recurrent layer whose state is about as large as a page of ``base``."""
    page = base.page_bytes
    num_bytes = draw(st.sampled_from([1, max(1, page // 2), page, page + 3, 2 * page]))
    layer = Mamba(
        block_size=draw(st.sampled_from([base.block_size, 4 * base.block_size])),
        shapes=((num_bytes,),) if num_bytes % 2 else ((num_bytes // 2,), (1, num_bytes // 2)),
        dtypes=("uint8",) if num_bytes % 2 else ("uint8", "int8"),
        mamba_cache_mode=draw(st.sampled_from(MAMBA_CACHE_MODES)),
        num_speculative_blocks=draw(st.sampled_from([0, 0, 0, 1])),
    )
    padded_layer = padded(draw, layer)
    assert isinstance(padded_layer, Mamba)
    return padded_layer


def named(forms: list[Layer], order: list[int]) -> Layers:
    """Layers like ``forms``, in the ``order`` of their numbers."""
    return {f"model.layers.{place}.attn": forms[number % len(forms)] for place, number in enumerate(order)}


@st.composite
def mixed_models(draw: st.DrawFn) -> Layers:
    """Layers of one to four sorts of any kind, in any order."""
    base = draw(bases)
    kinds = draw(st.lists(st.sampled_from(list(LAYER_KINDS.values())), min_size=1, max_size=4))
    forms = [
        draw(attention_layers(kind, base) if issubclass(kind, AttentionLayer) else states(base))
        for kind in kinds
    ]
    return named(forms, draw(st.lists(st.integers(0, 3), min_size=1, max_size=9)))


@st.composite
def common_models(draw: st.DrawFn) -> Layers:
    """What models are like: full attention beside windows, states, chunks or hidden states, of one base."""
    base = draw(bases)
    full = FullAttention(**base.sizes)
    window = SlidingWindow(**base.sizes, sliding_window=draw(windows))
    mla = MlaAttention(**base.sizes)
    beside: list[list[Layer]] = [
        [],
        [window],
        [window],
        [window.but(sliding_window=window.sliding_window + 3), window],
        [full.but(num_kv_heads=base.num_kv_heads * 2), window],
        [ChunkedLocalAttention(**base.sizes, attention_chunk_size=4)],
        [ChunkedLocalAttention(**base.sizes, attention_chunk_size=4, head_size_v=base.head_size + 1)],
        [full.but(head_size_v=base.head_size + 1), mla, window],
        [Mamba(block_size=base.block_size, shapes=((base.page_bytes,),), dtypes=("uint8",))],
        [draw(states(base))],
        [draw(states(base)), window],
        [HiddenState(**{**base.sizes, "head_size": draw(st.sampled_from([1, 3, 40]))})],
        [HiddenState(**base.sizes), window],
        [HiddenState(**base.sizes), window],
    ]
    first = draw(st.sampled_from([full, mla]))
    forms = [first, *draw(st.sampled_from(beside))]
    return named(forms, [0, 1, 2, *draw(st.lists(st.integers(0, 2), max_size=6))])


@st.composite
def slot_sharing_models(draw: st.DrawFn) -> Layers:
    """MLA layers, indexers, recurrent layers and tails: such as share slots, unless a size is off."""
    block_size = draw(st.sampled_from([2, 4]))
    head_size = draw(st.sampled_from([2, 4]))
    num_heads = draw(st.sampled_from([1, 1, 1, 2]))
    mla = MlaAttention(block_size=block_size, num_kv_heads=num_heads, head_size=head_size, dtype="bfloat16")
    indexer = MlaAttention(
        block_size=block_size, num_kv_heads=num_heads, head_size=head_size, dtype="uint8", tokens_per_state=2
    )
    state = Mamba(
        block_size=block_size,
        shapes=((draw(st.sampled_from([1, mla.page_bytes - 1, mla.page_bytes])),),),
        dtypes=("uint8",),
        mamba_cache_mode=draw(st.sampled_from(MAMBA_CACHE_MODES)),
    )
    tail = KpoolTail(
        block_size=1,
        num_kv_heads=1,
        head_size=draw(st.sampled_from([1, indexer.page_bytes])),
        head_size_v=0,
        dtype="uint8",
        sliding_window=2,
        dcp_sharded=False,
    )
    if draw(rarely):
        state = state.but(shapes=((mla.page_bytes + 1,),))
    forms: list[Layer] = [mla, indexer, state, tail]
    units = draw(st.lists(st.sampled_from(["mla", "mla", "mla_alone", "states", "tail"]), max_size=3))
    numbers = {"mla": [0, 1, 2, 3], "mla_alone": [0], "states": [2, 2], "tail": [3]}
    order = [number for unit in ["mla", *units] for number in numbers[unit]]
    return named(forms, order)


@st.composite
def sparse_models(draw: st.DrawFn) -> Layers:
    """MLA layers with their indexers, such as can keep pages on the host, now and then beside others."""
    block_size = draw(st.sampled_from([2, 4]))
    sparse = MlaAttention(
        block_size=block_size, num_kv_heads=1, head_size=draw(st.sampled_from([2, 5])), dtype="uint8"
    )
    indexer = sparse.but(head_size=draw(st.sampled_from([1, 3, 7])), cache_role="indexer")
    layers: dict[str, Layer] = {}
    for number in range(draw(st.integers(1, 4))):
        leads = draw(st.booleans())
        layers[f"model.layers.{number}.attn"] = sparse.but(is_index_group_leader=leads)
        if leads or number == 0:
            layers[f"model.layers.{number}.attn.indexer"] = indexer
    if draw(rarely):
        window = SlidingWindow(
            block_size=block_size, num_kv_heads=1, head_size=3, dtype="uint8", sliding_window=4
        )
        layers["model.layers.9.attn"] = window
    return layers


models = st.one_of(common_models(), common_models(), mixed_models(), slot_sharing_models(), sparse_models())


@st.composite
def shares(draw: st.DrawFn, layers: Layers, num_stages: int) -> list[Layers]:
    """The layers of each stage: consecutive ones, any, or all; a stage may have none."""
    names = list(layers)
    how = draw(st.sampled_from(["runs", "runs", "any", "all"]))
    if how == "all":
        return [dict(layers)] * num_stages
    if how == "any":
        of = {name: draw(st.integers(0, num_stages - 1)) for name in names}
        return [{name: layers[name] for name in names if of[name] == stage} for stage in range(num_stages)]
    bounds = sorted(
        draw(st.lists(st.integers(0, len(names)), min_size=num_stages - 1, max_size=num_stages - 1))
    )
    parts = zip([0, *bounds], [*bounds, len(names)], strict=True)
    return [{name: layers[name] for name in names[begin:end]} for begin, end in parts]


any_memory = st.one_of(st.integers(0, 300), st.integers(300, 6_000), st.integers(2_000, 20_000))
enough_memory = st.integers(800, 8_000)


@st.composite
def ranks_of(
    draw: st.DrawFn, layers: Layers, tensor: int, pipeline: int, memory: st.SearchStrategy[int]
) -> list[Rank]:
    """Ranks in the order of `Parallel`, of memory alike or not."""
    most = draw(memory)
    alike = draw(st.booleans())
    return [
        Rank(available_bytes=most if alike else draw(memory), layers=share)
        for share in draw(shares(layers, pipeline))
        for _ in range(tensor)
    ]


speculatives = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        Speculative,
        method=st.sampled_from(["eagle", "mtp", "ngram"]),
        model_type=st.sampled_from([None, "deepseek_v4"]),
        num_prefill_lookahead_tokens=st.sampled_from([0, 1, 4]),
    ),
)


@st.composite
def sparse_hosts(draw: st.DrawFn) -> SparseHost:
    """A host's pool; its hot buffer is rarely too small."""
    index_topk, num_queries = draw(st.sampled_from([1, 3, 8])), draw(st.sampled_from([1, 1, 2]))
    needed = index_topk * num_queries
    return SparseHost(
        host_pool_bytes=draw(st.sampled_from([0, 200, 5_000, 50_000, 500_000])),
        index_topk=index_topk,
        device_buffer_size=draw(st.sampled_from([None, None, needed, needed + 5, needed - 1])) or None,
        max_decode_query_len=num_queries,
        shared_host_pool=draw(st.booleans()),
    )


@st.composite
def requests(
    draw: st.DrawFn, *, layout: Layout | None = None, roomy: bool = False, with_override: bool = True
) -> PlanRequest:
    """A request for a model of any sort; often refused, for memory or for what the layout allows.

    ``layout``: Of them all, or one. ``roomy``: lengths are fitted to memory, which is rarely too small, and
    there are few blocks.
    """
    overrides = [None, 5, 9, 14] if roomy else [None, None, 1, 3, 9, 40]
    layers = draw(models)
    is_sparse = any("indexer" in name for name in layers)
    tensor, pipeline = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (1, 3), (2, 2)]))
    sparse_host = draw(sparse_hosts()) if is_sparse and draw(often) else None
    layout = layout or draw(st.sampled_from(Layout))
    tensor_form = TensorForm.LAYERS
    if sparse_host is not None and not layout.is_block_outermost:
        sparse_host = draw(st.sampled_from([None, None, None, sparse_host]))
    elif layout.is_block_outermost and sparse_host is None:
        tensor_form = draw(st.sampled_from([TensorForm.LAYERS, TensorForm.SLOTS]))
    return PlanRequest(
        ranks=draw(ranks_of(layers, tensor, pipeline, enough_memory if roomy else any_memory)),
        max_model_len=draw(lengths),
        auto_fit_max_model_len=roomy or draw(st.booleans()),
        block_size=draw(st.sampled_from([1, 4, 16])),
        layout=layout,
        num_blocks_override=draw(st.sampled_from(overrides)) if with_override else None,
        enable_prefix_caching=draw(often),
        prefix_match_unit=draw(st.sampled_from([None] * 9 + [1, 2, 3])),
        hybrid_groups=draw(often),
        mamba_cache_mode=draw(st.sampled_from(MAMBA_CACHE_MODES)),
        max_in_flight_tokens=draw(st.sampled_from([1, 3, 16, 8192])),
        max_encoder_tokens=draw(st.sampled_from([1, 17, 17] if roomy else [None, 1, 17, 17])),
        parallel=Parallel(
            tensor=tensor, pipeline=pipeline, decode_context=draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2]))
        ),
        speculative=draw(speculatives),
        sparse_host=sparse_host,
        tensor_form=tensor_form,
    )
