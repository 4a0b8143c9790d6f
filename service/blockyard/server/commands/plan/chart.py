"""What a plan serves over the context length, as a picture in a file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.abbreviations import counted, show_size
from blockyard.server.commands.plan.figures import Curve, curve_of, model_maximum, show_requests, stored
from blockyard.server.commands.plan.headline import hardware, memory_is_told, model_name
from blockyard.server.plan_schemas import PlanBody

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""That colour-blind people tell apart. Source: Okabe and Ito, "Color universal design"."""
DASHES = ("-", "--", "-.", ":")
INK = "#333333"
MARK = "#d55e00"
SHADE = "#eeeeee"
DPI = 150
MAX_LENGTH_TICKS = 12
MIN_DECADES = 3
"""Where the axis of values has fewer powers of ten, twice and five times these are ticks too."""
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,  # a name may have a dollar sign
    "svg.fonttype": "none",  # text stays text, to search and to read aloud
    "svg.hashsalt": "blockyard",  # the same plan gives the same file
}


def draw_chart(path: Path, body: PlanBody, plan: Plan) -> None:
    """Write ``path``, an SVG or PNG by its suffix: concurrency and blocks a request over context length.

    Raises:
        click.ClickException: There is nothing to draw, or the file cannot be written.
    """
    maximum = model_maximum(body)
    curve = curve_of(plan, maximum)
    if curve is None:
        raise click.ClickException("--plot: the model keeps nothing for its requests, so there is no curve")
    with mpl.rc_context(STYLE):
        figure = _figure(body, plan, curve, maximum)
        try:
            figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error


def _figure(body: PlanBody, plan: Plan, curve: Curve, maximum: int | None) -> Figure:
    """Not of pyplot, so that no display is looked for."""
    figure = Figure(figsize=(8, 7), layout="constrained", facecolor="white")
    upper, lower = figure.subplots(2, sharex=True)
    _write_title(upper, body, plan)
    _draw_concurrency(upper, plan, curve)
    _draw_blocks(lower, plan, curve)
    first, drawn = curve.lengths[0], curve.lengths[-1]
    last = max(drawn, maximum or 0)
    if last > first:
        lower.set_xscale("log", base=2)
        lower.set_xlim(first, last)
    if maximum is not None and drawn != maximum:
        words = "no request so long fits" if drawn < maximum else f"above the model's maximum, {maximum:,}"
        for axes in (upper, lower):
            axes.axvspan(min(drawn, maximum), last, color=SHADE, linewidth=0, zorder=0, label=words)
        upper.legend(loc="lower left", edgecolor="none", framealpha=0.8, fontsize=9)
    lower.set_xlabel(f"context length (tokens; k = 1,024, M = 1,048,576), {_end(plan, drawn, maximum)}")
    lower.xaxis.set_major_locator(FixedLocator(_powers(first, last)))
    lower.xaxis.set_major_formatter(FuncFormatter(lambda length, _: _short(length)))
    lower.xaxis.set_minor_locator(NullLocator())
    return figure


def _end(plan: Plan, drawn: int, maximum: int | None) -> str:
    """Why the axis ends where it does."""
    if maximum is not None and drawn <= maximum:
        return f"to the model's maximum, {maximum:,}"
    if drawn == plan.longest_model_len:
        return "to the longest request that fits"
    return "on to any length" if plan.longest_model_len is None else "to max_model_len"


def _write_title(axes: Axes, body: PlanBody, plan: Plan) -> None:
    if memory_is_told(body):
        sizes = sorted({rank.available_bytes for rank in plan.ranks})
    else:
        sizes = sorted({rank.placement.bytes_per_block * plan.num_blocks for rank in plan.ranks})
    memory = show_size(sizes[0]) if len(sizes) == 1 else f"{show_size(sizes[0])} to {show_size(sizes[-1])}"
    longest = "any length" if plan.longest_model_len is None else counted(plan.longest_model_len, "token")
    axes.set_title(model_name(body, plan), loc="left", fontsize=13, fontweight="bold", pad=54)
    axes.annotate(
        f"{hardware(body, plan)}, {memory} a rank for the cache\n"
        f"{stored(plan)}\n"
        f"{counted(plan.num_blocks, 'block')}, longest request that fits: {longest}",
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 8),
        textcoords="offset points",
        va="bottom",
        linespacing=1.3,
    )


def _draw_concurrency(axes: Axes, plan: Plan, curve: Curve) -> None:
    values = [float(requests) for requests in curve.concurrency]
    axes.plot(curve.lengths, values, color=COLOURS[0], linewidth=2)
    axes.set_ylabel("requests at a time")
    _scale(axes, values)
    here = curve.concurrency[curve.lengths.index(plan.max_model_len)]
    _mark(axes, curve, plan.max_model_len, float(here), show_requests(here), height=0.97)


def _draw_blocks(axes: Axes, plan: Plan, curve: Curve) -> None:
    total = curve.device_blocks
    for number, (name, blocks) in enumerate(curve.blocks):
        axes.plot(
            curve.lengths,
            [count or math.nan for count in blocks],  # a gap: 0 has no logarithm
            color=COLOURS[(number + 1) % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
            linewidth=2,
            label=name,
        )
    if len(curve.blocks) > 1:
        axes.plot(curve.lengths, total, color=INK, linewidth=1, label="all on the device")
    axes.set_ylabel("blocks a request")
    _scale(
        axes, [count for column in (total, *(held for _, held in curve.blocks)) for count in column if count]
    )
    axes.legend(loc="upper left", edgecolor="none", framealpha=0.8, fontsize=9)
    here = total[curve.lengths.index(plan.max_model_len)]
    _mark(axes, curve, plan.max_model_len, here, counted(here, "block"), height=0.03)


def _scale(axes: Axes, values: Sequence[float]) -> None:
    least, most = min(values) / 2, max(values) * 2
    ticks = value_ticks(least, most)
    axes.set_yscale("log")
    axes.set_ylim(min(least, ticks[0]), max(most, ticks[-1]))
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color="#e0e0e0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def value_ticks(least: float, most: float) -> list[int]:
    """Powers of ten between the two, from 1; where they are few, also 2 and 5 times these; at least two.

    Args:
        least: More than 0.
        most: At least 2.
    """
    candidates = [
        digit * 10**power for power in range(math.ceil(math.log10(most)) + 2) for digit in (1, 2, 5)
    ]
    inside = [tick for tick in candidates if least <= tick <= most]
    decades = [tick for tick in inside if str(tick).startswith("1")]
    if len(decades) >= MIN_DECADES:
        return decades
    if len(inside) < 2:
        below = [tick for tick in candidates if tick < least][-1:]
        inside = [*below, *inside, next(tick for tick in candidates if tick > most)]
    return inside


def _mark(axes: Axes, curve: Curve, length: int, value: float, words: str, *, height: float) -> None:
    """What the plan is made for: ``max_model_len``; told at a ``height`` (0 to 1) where no curve passes."""
    axes.axvline(length, color=MARK, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot([length], [value], marker="o", color=MARK, markersize=6, clip_on=False)
    is_right = length > math.sqrt(curve.lengths[0] * curve.lengths[-1])
    axes.annotate(
        f"max_model_len {length:,}: {words}",
        (length, height),
        xycoords=axes.get_xaxis_transform(),
        xytext=(-8 if is_right else 8, 0),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="top" if height > 0.5 else "bottom",
        fontsize=9,
        color=MARK,
    )


def _powers(first: int, last: int) -> list[int]:
    """Powers of two between the two, every n-th where there are many."""
    exponents = range((first - 1).bit_length(), last.bit_length())
    step = -(-len(exponents) // MAX_LENGTH_TICKS) or 1
    return [2**exponent for exponent in exponents[::step]]


def _short(length: float) -> str:
    for unit, size in (("M", 2**20), ("k", 2**10)):
        if length >= size:
            return f"{length / size:,.10g}{unit}"
    return f"{length:,.0f}"
