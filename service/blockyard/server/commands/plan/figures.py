"""What a plan serves, at its own length and at each other; what a token of the cache takes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.groups import Group
from blockyard.planning.layers import AttentionLayer, FullAttention, KvQuantMode, Layer, Mamba
from blockyard.planning.models import layers_of_model
from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.abbreviations import fold, spanned
from blockyard.server.plan_schemas import PlanBody

POINTS_PER_DOUBLING = 8
MAX_KINDS = 3
"""Of layers: of so many `stored` tells the bytes a token."""

BEYOND = 4
"""Where nothing bounds a request's length, the curve ends at so many times ``max_model_len``."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Columns, a row a context length.

    Attributes:
        lengths: Tokens, ascending: multiples of the smallest block, ``max_model_len``, and the longest.
        concurrency: Requests of that length at a time.
        blocks: Blocks of one such request, under the name of the groups that hold them; groups that hold
            equally many at any length are one.
        device_blocks: The same in all, without those of the host's memory.
    """

    lengths: list[int]
    concurrency: list[Fraction]
    blocks: list[tuple[str, list[int]]]
    device_blocks: list[int]


def requests_at_a_time(plan: Plan, length: int) -> Fraction | None:
    """How many requests of ``length`` tokens the blocks serve; None for a model that keeps nothing.

    Null blocks are never handed out, so one block less is there to be shared than the plan has.
    """
    workload = plan.request.workload(length)
    limits = []
    for is_host, num_blocks in (
        (False, plan.num_blocks),
        (True, plan.host_pool and plan.host_pool.num_blocks),
    ):
        groups = [group for group in plan.grouping.groups if group.host_resident is is_host]
        num_needed = sum(group.max_blocks(workload) for group in groups)
        if num_needed and num_blocks:
            limits.append(Fraction(num_blocks - 1, num_needed))
    return min(limits, default=None)


def show_requests(requests: Fraction) -> str:
    """``10.99 requests``: rounded down, as the last of them has to fit."""
    hundredths = requests * 100 // 1
    return f"{hundredths // 100:,}.{hundredths % 100:02} requests"


def model_maximum(body: PlanBody) -> int | None:
    """Tokens of the longest request that the model's configuration allows; None where it states none."""
    if body.hf_config is None:
        return None
    model = layers_of_model(
        body.hf_config,
        parallel=body.parallel.parallel(),
        block_size=body.block_size,
        kv_cache_dtype=body.kv_cache_dtype,
        mamba_cache_mode=body.mamba_cache_mode,
    )
    return model.max_model_len


def element_types(layers: Iterable[Layer]) -> list[str]:
    """In what ``layers`` are stored, each once and in their order: a type, or the name of a packed format."""
    return list(dict.fromkeys(name for layer in layers for name in _types(layer)))


def token_bytes(plan: Plan, number: int) -> list[Fraction]:
    """Bytes that a token takes of a rank in group ``number``: one figure, or several where ranks differ.

    None at all where a page is a state, whatever the tokens before it.
    """
    group = plan.grouping.groups[number]
    if not group.form.grows_with_block():
        return []
    pages = {rank.placement.groups[number].page_bytes for rank in plan.ranks} - {0}
    return sorted((Fraction(page, group.form.block_size) for page in pages), reverse=True)


def plain_attention(plan: Plan) -> str | None:
    """``131,072 bytes a token a rank, bfloat16``; None for a model that is more than one full attention."""
    groups = plan.grouping.groups
    if len(groups) != 1 or not isinstance(groups[0].form, FullAttention):
        return None
    shared = plan.request.parallel.decode_context if groups[0].form.dcp_sharded else 1
    each = f" (which keeps 1 token of {shared})" if shared > 1 else ""
    types = " and ".join(element_types(groups[0].layers.values()))
    return f"{spanned(map(float, token_bytes(plan, 0)))} bytes a token a rank{each}, {types}"


def stored(plan: Plan) -> str:
    """The same for any model: bytes a token by kind, where it has several, and all element types."""
    groups = plan.grouping.groups
    kinds = [
        f"{group.form.kind} {spanned(map(float, sizes))}"
        for number, group in enumerate(groups)
        if (sizes := token_bytes(plan, number))
    ]
    told = ", ".join(list(dict.fromkeys(kinds))[:MAX_KINDS])
    types = " and ".join(element_types(layer for group in groups for layer in group.layers.values()))
    return plain_attention(plan) or (f"{told} bytes a token a rank; " if told else "") + f"stored as {types}"


def curve_of(plan: Plan, maximum: int | None) -> Curve | None:
    """The curve of ``plan``, up to the model's own ``maximum``; None for a model that keeps nothing."""
    groups = plan.grouping.groups
    lengths = _lengths(plan, maximum)
    concurrency = [served for length in lengths if (served := requests_at_a_time(plan, length)) is not None]
    if not concurrency:
        return None
    held = [_blocks(plan, group, lengths) for group in groups]
    alike = fold(zip(groups, held, strict=True), lambda pair: (_name(pair[0], 1), pair[1]))
    on_device = [blocks for group, blocks in zip(groups, held, strict=True) if not group.host_resident]
    return Curve(
        lengths=lengths,
        concurrency=concurrency,
        blocks=[
            (_name(group, len(places)), [len(places) * count for count in blocks])
            for places, (group, blocks) in alike
        ],
        device_blocks=[sum(column) for column in zip(*on_device, strict=True)],
    )


def _types(layer: Layer) -> Iterator[str]:
    if isinstance(layer, Mamba):
        yield from layer.dtypes
    elif isinstance(layer, AttentionLayer):
        if layer.kv_quant_mode is not KvQuantMode.NONE:
            yield layer.kv_quant_mode.value
        else:
            yield getattr(layer, "cache_dtype_str", None) or layer.dtype


def _blocks(plan: Plan, group: Group, lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(group.max_blocks(plan.request.workload(length)) for length in lengths)


def _name(group: Group, count: int) -> str:
    times = f"{count} groups of " if count > 1 else ""
    place = " on the host" if group.host_resident else ""
    return f"{times}{group.form.kind}{place}, {group.form.block_size:,} tokens a block"


def _lengths(plan: Plan, maximum: int | None) -> list[int]:
    """From one block to the longest request that fits and that the model allows, evenly by doublings."""
    unit = min((group.form.block_size for group in plan.grouping.groups), default=1)
    ends = [end for end in (plan.longest_model_len, maximum) if end is not None]
    last = max(min(ends, default=BEYOND * plan.max_model_len), plan.max_model_len)
    lengths = {min(unit, last), plan.max_model_len, last}
    point = 0
    while (length := unit * 2 ** (point / POINTS_PER_DOUBLING)) < last:
        lengths.add(min(last, div_ceil(int(length), unit) * unit))
        point += 1
    return sorted(lengths)
