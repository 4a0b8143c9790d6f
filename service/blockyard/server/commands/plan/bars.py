"""How memory divides, as a bar a rank; equal ranks share one. Legible without colour, and in ASCII."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from blockyard.server.commands.plan.memory import MemoryShares, Part
from blockyard.server.commands.plan.sizes import show_size
from blockyard.server.commands.plan.tables import new_table

MIN_BAR_COLUMNS = 10


@dataclass(frozen=True, slots=True)
class Ink:
    """What a part of a bar is drawn with: a sign, one for terminals without Unicode, and a colour."""

    sign: str
    ascii_sign: str
    colour: str


INKS: Mapping[Part, Ink] = {
    Part.WEIGHTS: Ink("█", "#", "blue"),
    Part.BLOCKS: Ink("▓", "=", "green"),
    Part.NULL_BLOCK: Ink("▒", "0", "magenta"),
    Part.LEFT_OVER: Ink("░", "-", "yellow"),
    Part.HELD_BACK: Ink("·", ".", "bright_black"),
}
"""Signs and colours both tell parts apart: not everyone sees either."""


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
        thin |= {part for part, n in zip(parts, num_columns, strict=True) if shares.parts.get(part) and not n}
        bar = Text.assemble(
            *(
                (_sign(console, part) * n, INKS[part].colour)
                for part, n in zip(parts, num_columns, strict=True)
            )
        )
        console.print(
            Text.assemble(f"{name:<{names}}  ", bar, f"  {sizes[name]}"), no_wrap=True, soft_wrap=True
        )
    _print_sizes(console, memories, parts)
    if thin:
        names_of_thin = ", ".join(part.value for part in parts if part in thin)
        console.print(Text(f"Too thin for a column of the bar: {names_of_thin}.", style="dim"))


def columns(sizes: Sequence[int], whole: int, num_columns: int) -> list[int]:
    """How many of ``num_columns``, which stand for ``whole``, each of ``sizes`` takes, to the nearest.

    The largest takes what rounding leaves over, so that equal sums are equally long.
    """
    if not whole:
        return [0] * len(sizes)
    shares = [round(size * num_columns / whole) for size in sizes]
    shares[sizes.index(max(sizes))] += round(sum(sizes) * num_columns / whole) - sum(shares)
    return shares


def _size(shares: MemoryShares) -> str:
    memory = show_size(shares.total_bytes - shares.missing_bytes)
    return f"{show_size(shares.total_bytes)} of {memory}" if shares.missing_bytes else memory


def _sign(console: Console, part: Part) -> str:
    return INKS[part].ascii_sign if console.options.ascii_only else INKS[part].sign


def _print_sizes(console: Console, memories: Mapping[str, MemoryShares], parts: Sequence[Part]) -> None:
    headings = [Text.assemble((_sign(console, part), INKS[part].colour), f" {part.value}") for part in parts]
    table = new_table("", headings)
    for name, shares in memories.items():
        cells = [show_size(shares.parts[part]) if part in shares.parts else "" for part in parts]
        table.add_row(Text(name), *map(Text, cells))
    console.print(table)
