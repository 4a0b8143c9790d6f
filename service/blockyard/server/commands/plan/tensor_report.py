"""Where a plan's layers lie, for people: a row a tensor, ranks with equal tensors once."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from blockyard.planning.placement import Slot, Tensor
from blockyard.planning.planner import Plan, RankPlan
from blockyard.server.commands.plan.fold import fold
from blockyard.server.commands.plan.ranges import layer_names, rank_name
from blockyard.server.commands.plan.tables import new_table, print_heading, print_rest


def print_tensors(console: Console, plan: Plan, limit: int | None) -> None:
    """All tensors, or the first ``limit``."""
    rows = list(_rows(plan.ranks))
    is_slots = any(isinstance(tensor, Slot) for _, tensor in rows)
    print_heading(console, "Where layers lie, in bytes")
    if is_slots:
        console.print(Text("A row's page of block b begins at offset + b * block stride."))
        table = new_table("shared by", ("offset", "block stride"))
    else:
        console.print(
            Text("A row's layer l (from 0), block b: offset + l * layer stride + b * block stride.")
        )
        table = new_table("layers", ("offset", "layer stride", "block stride"))
    last = None
    for place, tensor in rows[:limit]:
        if place != last:
            table.add_row(Text(place, style="bold"))
            last = place
        table.add_row(*_cells(tensor))
    console.print(table)
    print_rest(console, len(rows), limit, "tensors")


def _rows(ranks: Sequence[RankPlan]) -> Iterator[tuple[str, Tensor | Slot]]:
    """Each tensor under the name of its memory; tensors of layers that lie elsewhere are none."""
    for alike, tensors in fold([rank.tensors for rank in ranks], repr):
        for tensor in tensors:
            is_host = isinstance(tensor, Tensor) and tensor.host_resident
            if isinstance(tensor, Slot) or not tensor.is_elsewhere:
                where = f"{rank_name(alike)}{', on the host' if is_host else ''}"
                yield f"{where}: {tensor.size:,} bytes", tensor


def _cells(tensor: Tensor | Slot) -> list[str]:
    offset, block_stride = f"{tensor.offset:,}", f"{tensor.block_stride:,}"
    if isinstance(tensor, Slot):
        return [layer_names(tensor.shared_by), offset, block_stride]
    layer_stride = f"{tensor.layer_stride:,}" if len(tensor.layers) > 1 else ""
    return [layer_names(tensor.layers), offset, layer_stride, block_stride]
