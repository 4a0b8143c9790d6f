"""A plan for people: answers, groups, memory and tensors, at the terminal's width or 80 columns."""

from collections.abc import Iterable, Iterator

from rich.console import Console

from blockyard.planning.groups import Group
from blockyard.planning.placement import Slot, Tensor
from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.abbreviations import (
    fold,
    layer_names,
    number_ranges,
    rank_name,
    show_size,
    spanned,
)
from blockyard.server.commands.plan.bars import device_memory, host_memory, print_bars
from blockyard.server.commands.plan.figures import element_types, model_maximum, token_bytes
from blockyard.server.commands.plan.headline import (
    answers,
    in_flight_notes,
    memory_is_told,
    remarks,
    warnings,
)
from blockyard.server.commands.plan.tables import (
    MAX_ROWS,
    Row,
    print_heading,
    print_paragraph,
    print_rest,
    print_table,
)
from blockyard.server.plan_schemas import PlanBody

GROUP_HEADINGS = (
    "group",
    "layers",
    "stored as",
    "tokens\na block",
    "bytes\na token",
    "bytes\na block",
    "blocks a\nrequest",
)


def print_report(body: PlanBody, plan: Plan, *, all_tensors: bool) -> None:
    """All of ``plan`` on standard output; lists are cut to `MAX_ROWS` rows unless ``all_tensors``."""
    console = Console(highlight=False)
    for answer in answers(body, plan, model_maximum(body)):
        print_paragraph(console, answer, style="bold")
    limit = None if all_tensors else MAX_ROWS
    if plan.grouping.groups:
        for remark in remarks(plan):
            print_paragraph(console, remark)
        _print_groups(console, plan, limit)
        _print_memory(console, body, plan, limit)
        _print_tensors(console, plan, limit)
    for warning in warnings(body, plan):
        console.print()
        print_paragraph(console, f"Warning: {warning}", style="yellow")


def _print_groups(console: Console, plan: Plan, limit: int | None) -> None:
    print_heading(console, "Groups: layers that share a block table")
    rows = fold(_group_rows(plan), tuple)
    print_table(console, GROUP_HEADINGS, [_group_row(numbers, row) for numbers, row in rows[:limit]])
    print_rest(console, len(rows), limit, "kinds of group")
    if len(plan.ranks) > 1:
        note = "Layers are counted over all ranks; bytes are one rank's"
        if any("\n" in row[-2] for _, row in rows[:limit]):
            note += ", under each other where ranks have more or fewer layers"
        print_paragraph(console, f"{note}.", style="dim")
    for note in in_flight_notes(plan):
        print_paragraph(console, note)
    console.print()
    names = [layer_names(group.layers) for group in plan.grouping.groups]
    digits = len(str(len(names)))
    for number, name in list(enumerate(names))[:limit]:
        print_paragraph(console, name, lead=f"{number:<{digits}}   ", indent=digits + 3)
    if any("/" in name for name in names[:limit]):
        print_paragraph(console, "In braces, a-b/n is every n-th number from a to b.", style="dim")
    print_rest(console, len(names), limit, "groups")


def _group_rows(plan: Plan) -> list[list[str]]:
    """Kind, layers, types, tokens a block, bytes a token, bytes a block, blocks a request."""
    workload = plan.request.workload(plan.max_model_len)
    return [
        [
            f"{group.form.kind}{_flags(group)}",
            f"{len(group.layers):,}",
            ",\n".join(element_types(group.layers.values())),
            f"{group.form.block_size:,}",
            "\n".join(spanned([float(size)]) for size in token_bytes(plan, number)),
            _lines({rank.placement.groups[number].page_bytes for rank in plan.ranks} - {0}),
            f"{group.max_blocks(workload):,}",
        ]
        for number, group in enumerate(plan.grouping.groups)
    ]


def _group_row(numbers: list[int], row: list[str]) -> list[str]:
    kind, layers, *figures = row
    *figures, blocks = figures
    each = " each" if len(numbers) > 1 else ""
    return [f"{number_ranges(numbers)} {kind}", layers + each, *figures, blocks + each]


def _flags(group: Group) -> str:
    flags = {"draft": group.is_draft, "host": group.host_resident, "derived": group.derived}
    named = ", ".join(name for name, is_so in flags.items() if is_so)
    return f" ({named})" if named else ""


def _lines(sizes: Iterable[int]) -> str:
    """One under the other, largest first."""
    return "\n".join(f"{size:,}" for size in sorted(sizes, reverse=True))


def _print_memory(console: Console, body: PlanBody, plan: Plan, limit: int | None) -> None:
    print_heading(console, "Memory of each rank")
    if not memory_is_told(body):
        taken = {rank.placement.bytes_per_block * plan.num_blocks for rank in plan.ranks}
        sizes = " to ".join(map(show_size, sorted(taken)[:: max(1, len(taken) - 1)]))
        print_paragraph(
            console, f"{plan.num_blocks:,} blocks take {sizes} of a rank, the null block included."
        )
        return
    devices = [
        (rank_name(ranks), shares)
        for ranks, shares in fold(device_memory(body, plan), lambda shares: tuple(shares.parts.items()))
    ]
    memories = dict(devices[:limit])
    host = host_memory(body, plan)
    if host is not None:
        memories["host"] = host
    print_bars(console, memories)
    print_rest(console, len(devices), limit, "kinds of rank")


def _print_tensors(console: Console, plan: Plan, limit: int | None) -> None:
    places = list(_tensors(plan))
    is_slots = any(isinstance(tensor, Slot) for _, tensor in places)
    print_heading(console, "Where layers lie, in bytes")
    if is_slots:
        print_paragraph(console, "A row's page of block b begins at offset + b * block stride.")
        headings = ["shared by", "offset", "block stride"]
    else:
        print_paragraph(
            console, "A row's layer l (from 0), block b: offset + l * layer stride + b * block stride."
        )
        headings = ["layers", "offset", "layer stride", "block stride"]
    rows: list[Row] = []
    last = None
    for place, tensor in places[:limit]:
        if place != last:
            rows.append(place)
            last = place
        rows.append(_tensor_row(tensor))
    print_table(console, headings, rows)
    print_rest(console, len(places), limit, "tensors")


def _tensors(plan: Plan) -> Iterator[tuple[str, Tensor | Slot]]:
    """Each tensor under the name of its memory; tensors of layers that lie elsewhere are none."""
    for alike, tensors in fold([rank.tensors for rank in plan.ranks], repr):
        for tensor in tensors:
            is_host = isinstance(tensor, Tensor) and tensor.host_resident
            if isinstance(tensor, Slot) or not tensor.is_elsewhere:
                where = f"{rank_name(alike)}{', on the host' if is_host else ''}"
                yield f"{where}: {tensor.size:,} bytes", tensor


def _tensor_row(tensor: Tensor | Slot) -> list[str]:
    offset, block_stride = f"{tensor.offset:,}", f"{tensor.block_stride:,}"
    if isinstance(tensor, Slot):
        return [layer_names(tensor.shared_by), offset, block_stride]
    layer_stride = f"{tensor.layer_stride:,}" if len(tensor.layers) > 1 else ""
    return [layer_names(tensor.layers), offset, layer_stride, block_stride]
