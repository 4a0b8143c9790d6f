"""Values of options: memory sizes, one or one a rank, lengths that may be ``auto``, pictures to write."""

import os
from pathlib import Path
from typing import Any

import click

from blockyard.server.commands.plan.sizes import parse_size

AUTO = "auto"
PLOT_SUFFIXES = (".svg", ".png")


class PerRank(click.ParamType[Any]):
    """Values by comma, one a rank, or one for all."""

    def __init__(self, item: click.ParamType[Any]) -> None:
        self.item = item
        self.name = f"{item.name.upper()}[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A tuple of values."""
        if isinstance(value, tuple):
            return value
        return tuple(self.item.convert(part.strip(), param, ctx) for part in value.split(","))


class Size(click.ParamType[int]):
    """A memory size, in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes; what is no size is a mistake in the arguments."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class MaxModelLen(click.ParamType[Any]):
    """A number of tokens, or ``auto``."""

    name = "tokens|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or `AUTO`."""
        if value == AUTO:
            return value
        if not str(value).isdecimal() or int(value) == 0:
            self.fail(
                f"{value!r} is no number of tokens: write 131072, say, or auto for what fits", param, ctx
            )
        return int(value)


class PlotFile(click.Path):
    """A picture to write."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its path, with a suffix that we can draw."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() not in PLOT_SUFFIXES:
            self.fail(f"{value!r} has to end in {' or '.join(PLOT_SUFFIXES)}", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"there is no folder {str(path.parent)!r} to write {path.name!r} to", param, ctx)
        return path
