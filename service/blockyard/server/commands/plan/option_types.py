"""Options that set a field of a plan's request, and what may be written behind them."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from blockyard.planning.models import KV_CACHE_DTYPES
from blockyard.server.plan_schemas import HisparseBody, ParallelBody, PlanBody, SpeculativeBody, WorkerBody

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

WORKERS = "workers"

PARTS: Mapping[str, type[BaseModel]] = {
    WORKERS: WorkerBody,
    "parallel": ParallelBody,
    "speculative": SpeculativeBody,
    "hisparse": HisparseBody,
}
"""Objects in a request whose fields are options."""

AUTO = "auto"
PLOT_SUFFIXES = (".svg", ".png")
DTYPE_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}

SIZE_UNITS = {
    "b": 1,
    **{prefix + "b": 1000 ** (power + 1) for power, prefix in enumerate("kmgt")},
    **{prefix + "ib": 1024 ** (power + 1) for power, prefix in enumerate("kmgt")},
}
"""Bytes. A lone G is none: it is 1000^3 to some and 1024^3 to others."""

LEAST_PLAIN_BYTES = 2**20
"""A number without a unit that is smaller is one whose unit was forgotten."""

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) ?([A-Za-z]*)")


class SectionOption(click.Option):
    """An option under a heading of ``--help``."""

    def __init__(self, *declarations: str, section: str, **attributes: Any) -> None:
        super().__init__(declarations, **attributes)
        self.section = section


class FieldOption(SectionOption):
    """An option that sets a field of the request.

    Attributes:
        path: The field: its name, or the name of an object in `PARTS` and of a field in it. One of
            ``workers`` is set in each, and has a value a rank.
    """

    def __init__(self, path: str, *declarations: str, **attributes: Any) -> None:
        self.path = tuple(path.split("."))
        self.shown_default: str | None = attributes.pop("show_default", _default(self.path))
        super().__init__(*declarations, default=None, **attributes)

    def get_help_extra(self, ctx: click.Context) -> "OptionHelpExtra":
        """What a request has without the option; ranges are told once they are left."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        if self.shown_default is not None:
            extra["default"] = self.shown_default
        return extra

    @property
    def is_per_rank(self) -> bool:
        """Whether it has a value a rank."""
        return self.path[0] == WORKERS


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
    """A memory size, in bytes.

    Args:
        rounding: To a whole number of bytes: down for what there is, up for what is taken.
    """

    name = "size"

    def __init__(self, rounding: Callable[[Fraction], int] = math.floor) -> None:
        self.rounding = rounding

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes; what is no size is a mistake in the arguments."""
        if isinstance(value, int):
            return value
        try:
            return self.rounding(parse_size(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class CacheDtype(click.Choice[str]):
    """An element type of the cache, in any case, or by its short name."""

    def __init__(self) -> None:
        super().__init__(KV_CACHE_DTYPES, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name that a request has for it."""
        return super().convert(DTYPE_ALIASES.get(str(value).lower(), value), param, ctx)


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


def parse_size(text: str) -> Fraction:
    """The bytes that ``text`` says, such as ``80GiB``, ``1.5 tb`` or ``8589934592``; perhaps a fraction.

    Raises:
        ValueError: It says none; with what to write instead.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: write 80GiB, 80GB, 512MiB or a number of bytes")
    number, unit = found.groups()
    if unit and unit.lower() not in SIZE_UNITS:
        raise ValueError(f"{text!r}: {_advice(unit)}")
    if not unit and 0 < Fraction(number) < LEAST_PLAIN_BYTES:
        raise ValueError(f"{number} is {number} bytes: {number}GiB? For so few bytes write {number}B")
    num_bytes: Fraction = Fraction(number) * SIZE_UNITS[unit.lower() or "b"]
    return num_bytes


def _advice(unit: str) -> str:
    prefix = unit[0].upper()
    if prefix not in "KMGT" or unit[1:].lower() not in ("", "i"):
        return f"{unit!r} is no unit: write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
    power = "KMGT".index(prefix) + 1
    return f"write {prefix}iB for 1024^{power} bytes, or {prefix}B for 1000^{power}"


def _default(path: Sequence[str]) -> str | None:
    """The field's default in a request, for people; None where its absence means something."""
    *part, name = path
    field = (PARTS[part[0]] if part else PlanBody).model_fields[name]
    default = field.default
    if default is None or default is PydanticUndefined:
        return None
    return {"True": "yes", "False": "no"}.get(str(default), str(default))
