"""What a plan serves at each context length."""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.arithmetic import div_ceil
from blockyard.planning.capacity import capacity
from blockyard.planning.groups import Group
from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.fold import fold

POINTS_PER_DOUBLING = 8
BEYOND = 4
"""Where a request's blocks have a bound, the curve ends at so many times ``max_model_len``."""


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
    concurrency: list[float]
    blocks: list[tuple[str, list[int]]]
    device_blocks: list[int]


def curve_of(plan: Plan) -> Curve | None:
    """The curve of ``plan``; None for a model that keeps nothing."""
    lengths = _lengths(plan)
    groups = plan.grouping.groups
    concurrency = []
    for length in lengths:
        served = capacity(groups, plan.num_blocks, plan.host_pool, plan.request.workload(length))
        if served is None:
            return None
        concurrency.append(served.max_concurrency)
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


def _blocks(plan: Plan, group: Group, lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(group.max_blocks(plan.request.workload(length)) for length in lengths)


def _name(group: Group, count: int) -> str:
    times = f"{count} groups of " if count > 1 else ""
    place = " on the host" if group.host_resident else ""
    return f"{times}{group.form.kind}{place}, {group.form.block_size:,} tokens a block"


def _lengths(plan: Plan) -> list[int]:
    """From one block to the longest request that fits, evenly by doublings."""
    unit = min((group.form.block_size for group in plan.grouping.groups), default=1)
    longest = plan.longest_model_len
    last = max(BEYOND * plan.max_model_len if longest is None else longest, plan.max_model_len)
    lengths = {min(unit, last), plan.max_model_len, last}
    point = 0
    while (length := unit * 2 ** (point / POINTS_PER_DOUBLING)) < last:
        lengths.add(min(last, div_ceil(int(length), unit) * unit))
        point += 1
    return sorted(lengths)
