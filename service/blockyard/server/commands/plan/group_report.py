"""The groups of a plan for people: figures, equal ones in one row, and the layers of each."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from blockyard.planning.groups import Group
from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.fold import fold
from blockyard.server.commands.plan.ranges import layer_names, number_ranges
from blockyard.server.commands.plan.tables import new_table, print_heading, print_rest

HEADINGS = ("layers", "tokens\na block", "bytes\na page", "bytes\na block", "blocks\na request")


def print_groups(console: Console, plan: Plan, limit: int | None) -> None:
    """All groups, or the first ``limit`` rows."""
    print_heading(console, "Groups: layers that share a block table")
    table = new_table("group", HEADINGS)
    rows = fold(_rows(plan), tuple)
    for numbers, (kind, *figures) in rows[:limit]:
        table.add_row(Text(f"{number_ranges(numbers)} {kind}"), *figures)
    console.print(table)
    print_rest(console, len(rows), limit, "kinds of group")
    _print_layers(console, plan.grouping.groups, limit)


def _rows(plan: Plan) -> list[list[str]]:
    workload = plan.request.workload(plan.max_model_len)
    return [
        [
            f"{group.form.kind}{_flags(group)}",
            f"{len(group.layers):,}",
            f"{group.form.block_size:,}",
            _figures({layer.page_bytes for layer in group.layers.values()}),
            _figures({rank.placement.groups[number].page_bytes for rank in plan.ranks} - {0}),
            f"{group.max_blocks(workload):,}",
        ]
        for number, group in enumerate(plan.grouping.groups)
    ]


def _flags(group: Group) -> str:
    flags = {"draft": group.is_draft, "host": group.host_resident, "derived": group.derived}
    named = ", ".join(name for name, is_so in flags.items() if is_so)
    return f" ({named})" if named else ""


def _figures(sizes: set[int]) -> str:
    """One under the other, largest first: layers of several page sizes, or ranks with other layers."""
    return "\n".join(f"{size:,}" for size in sorted(sizes, reverse=True))


def _print_layers(console: Console, groups: Sequence[Group], limit: int | None) -> None:
    console.print()
    table = new_table("", ())
    table.show_header = False
    table.add_column(overflow="fold")
    names = [layer_names(group.layers) for group in groups]
    for number, name in list(enumerate(names))[:limit]:
        table.add_row(str(number), name)
    console.print(table)
    if any("/" in name for name in names[:limit]):
        console.print(Text("In braces, a-b/n is every n-th number from a to b.", style="dim"))
    print_rest(console, len(groups), limit, "groups")
