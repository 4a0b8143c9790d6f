"""A plan for people: answers, groups, memory and tensors, at the terminal's width or 80 columns."""

from rich.console import Console
from rich.text import Text

from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.bars import print_bars
from blockyard.server.commands.plan.fold import fold
from blockyard.server.commands.plan.group_report import print_groups
from blockyard.server.commands.plan.headline import answer, remarks
from blockyard.server.commands.plan.memory import device_memory, host_memory
from blockyard.server.commands.plan.ranges import rank_name
from blockyard.server.commands.plan.tables import MAX_ROWS, print_heading, print_rest
from blockyard.server.commands.plan.tensor_report import print_tensors
from blockyard.server.plan_schemas import PlanBody


def print_report(body: PlanBody, plan: Plan, *, all_tensors: bool) -> None:
    """All of ``plan`` on standard output; lists are cut to `MAX_ROWS` rows unless ``all_tensors``."""
    console = Console(highlight=False)
    console.print(Text(answer(body, plan), style="bold"))
    for remark in remarks(plan):
        console.print(Text(remark))
    limit = None if all_tensors else MAX_ROWS
    if plan.grouping.groups:
        print_groups(console, plan, limit)
        _print_memory(console, body, plan, limit)
        print_tensors(console, plan, limit)
    for warning in plan.grouping.warnings:
        console.print(Text(f"\nWarning: {warning}", style="yellow"))


def _print_memory(console: Console, body: PlanBody, plan: Plan, limit: int | None) -> None:
    print_heading(console, "Memory of each rank")
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
