"""A pool's blocks in a few lines: a sign is a run of blocks, drawn by the state that most of them have."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from blockyard.core.arithmetic import div_ceil
from blockyard.core.block_map import BlockMap, State
from blockyard.server.commands.ink import Ink

MAX_LINES = 6

INKS: Mapping[State, Ink] = {
    State.NULL: Ink("0", "0", "magenta"),
    State.FREE: Ink("·", ".", "bright_black"),
    State.FREE_CACHED: Ink("░", "-", "cyan"),
    State.HELD: Ink("▒", "=", "yellow"),
    State.HELD_CACHED: Ink("█", "#", "green"),
}


class PoolMap:
    """Draws ``blocks``, a map by state, at the width of the terminal, and what the signs stand for."""

    def __init__(self, blocks: BlockMap) -> None:
        self._blocks = blocks

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        num_blocks = len(self._blocks.codes)
        run = div_ceil(num_blocks, options.max_width * MAX_LINES)
        each = "each of them" if run == 1 else f"{run:,} a sign, by the state of most of them"
        yield Text(f"{num_blocks:,} blocks, {each}")
        states = list(run_states(self._blocks.codes, run))
        for begin in range(0, len(states), options.max_width):
            yield _line(states[begin : begin + options.max_width], options)
        yield Columns(self._legend(options), padding=(0, 2))

    def _legend(self, options: ConsoleOptions) -> Iterator[Text]:
        for entry in self._blocks.legend:
            ink = INKS[State(entry.code)]
            yield Text.assemble(
                (ink.sign_on(options), ink.colour), f" {entry.label} {entry.num_blocks:,}", no_wrap=True
            )


def run_states(codes: bytes, run: int) -> Iterator[State]:
    """The state that most blocks of each ``run`` of ``codes`` have; of equally many, the one more in use.

    Codes 1 1 4 | 4 4 3 | 4 1 in runs of 3 are 1, 4 and 4.
    """
    for begin in range(0, len(codes), run):
        some = codes[begin : begin + run]
        yield max(State, key=lambda state: (some.count(state), state))


def _line(states: list[State], options: ConsoleOptions) -> Text:
    parts = ((INKS[state], len(list(same))) for state, same in groupby(states))
    return Text.assemble(
        *((ink.sign_on(options) * length, ink.colour) for ink, length in parts), no_wrap=True
    )
