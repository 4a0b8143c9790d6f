"""How each rank's memory divides, as a bar a rank; equal ranks share one.

Legible without colour, and in ASCII. A plan for a number of blocks, whatever the memory, has no bars.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.console import Console
from rich.text import Text

from blockyard.planning.planner import Plan
from blockyard.server.commands.ink import Ink
from blockyard.server.commands.plan.abbreviations import show_size
from blockyard.server.commands.plan.tables import print_paragraph, print_table
from blockyard.server.plan_schemas import PlanBody, WorkerBody

MIN_BAR_COLUMNS = 10


class Part(Enum):
    """What memory is for, as people read it."""

    WEIGHTS = "weights"
    BLOCKS = "KV blocks"
    """All but the null block."""
    NULL_BLOCK = "null block"
    LEFT_OVER = "left over"
    """Less than a block; more where another rank has room for fewer blocks."""
    HELD_BACK = "held back"
    """By the utilization."""


INKS: Mapping[Part, Ink] = {
    Part.WEIGHTS: Ink("█", "#", "blue"),
    Part.BLOCKS: Ink("▓", "=", "green"),
    Part.NULL_BLOCK: Ink("▒", "0", "magenta"),
    Part.LEFT_OVER: Ink("░", "-", "yellow"),
    Part.HELD_BACK: Ink("·", ".", "bright_black"),
}


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """One memory, divided.

    Attributes:
        parts: Bytes of each part that there can be, in the order of the enumeration.
        missing_bytes: What the blocks take beyond the memory; only where their number was given.
    """

    parts: dict[Part, int]
    missing_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of the memory, what is missing included."""
        return sum(self.parts.values())


def device_memory(body: PlanBody, plan: Plan) -> list[MemoryShares]:
    """Each rank's."""
    workers = body.workers * len(plan.ranks) if len(body.workers) == 1 else body.workers
    return [
        _shares(worker, rank.placement.bytes_per_block, plan.num_blocks)
        for worker, rank in zip(workers, plan.ranks, strict=True)
    ]


def host_memory(body: PlanBody, plan: Plan) -> MemoryShares | None:
    """Of the host's pages, where there are any."""
    if body.hisparse is None or plan.host_pool is None:
        return None
    pool = plan.host_pool
    return MemoryShares(
        {
            Part.BLOCKS: (pool.num_blocks - 1) * pool.block_bytes,
            Part.NULL_BLOCK: pool.block_bytes,
            Part.LEFT_OVER: body.hisparse.host_pool_bytes - pool.num_blocks * pool.block_bytes,
        }
    )


def print_bars(console: Console, memories: Mapping[str, MemoryShares]) -> None:
    """A bar for each of ``memories``, by name and to one scale, and a table of the sizes under it."""
    widest = max(shares.total_bytes for shares in memories.values())
    names = max(map(len, memories))
    sizes = {name: _size(shares) for name, shares in memories.items()}
    room = max(MIN_BAR_COLUMNS, console.width - names - max(map(len, sizes.values())) - 4)
    parts = [part for part in Part if any(part in shares.parts for shares in memories.values())]
    thin = set()
    for name, shares in memories.items():
        num_columns = columns([shares.parts.get(part, 0) for part in parts], widest, room)
        drawn = list(zip(parts, num_columns, strict=True))
        thin |= {part for part, count in drawn if shares.parts.get(part) and not count}
        bar = Text.assemble(*((_sign(console, part) * count, INKS[part].colour) for part, count in drawn))
        line = Text.assemble(f"{name:<{names}}  ", bar, f"  {sizes[name]}")
        console.print(line, no_wrap=True, soft_wrap=True)
    headings = [Text.assemble((_sign(console, part), INKS[part].colour), f" {part.value}") for part in parts]
    rows = [
        [name, *(show_size(shares.parts[part]) if part in shares.parts else "" for part in parts)]
        for name, shares in memories.items()
    ]
    print_table(console, ["", *headings], rows)
    if thin:
        named = ", ".join(part.value for part in parts if part in thin)
        print_paragraph(console, f"Too thin for a column of the bar: {named}.", style="dim")


def columns(sizes: Sequence[int], whole: int, num_columns: int) -> list[int]:
    """How many of ``num_columns``, which stand for ``whole``, each of ``sizes`` takes, to the nearest.

    The largest takes what rounding leaves over, so that equal sums are equally long.
    """
    if not whole:
        return [0] * len(sizes)
    shares = [round(size * num_columns / whole) for size in sizes]
    shares[sizes.index(max(sizes))] += round(sum(sizes) * num_columns / whole) - sum(shares)
    return shares


def _shares(worker: WorkerBody, bytes_per_block: int, num_blocks: int) -> MemoryShares:
    blocks = {Part.BLOCKS: (num_blocks - 1) * bytes_per_block, Part.NULL_BLOCK: bytes_per_block}
    if worker.total_memory_bytes is None:
        left = worker.available_bytes() - sum(blocks.values())
        return MemoryShares({**blocks, Part.LEFT_OVER: max(0, left)}, max(0, -left))
    usable = int(worker.total_memory_bytes * worker.memory_utilization)
    left = usable - worker.weights_bytes - sum(blocks.values())
    return MemoryShares(
        {
            Part.WEIGHTS: worker.weights_bytes,
            **blocks,
            Part.LEFT_OVER: max(0, left),
            Part.HELD_BACK: worker.total_memory_bytes - usable,
        },
        max(0, -left),
    )


def _size(shares: MemoryShares) -> str:
    memory = show_size(shares.total_bytes - shares.missing_bytes)
    return f"{show_size(shares.total_bytes)} of {memory}" if shares.missing_bytes else memory


def _sign(console: Console, part: Part) -> str:
    return INKS[part].sign_on(console.options)
