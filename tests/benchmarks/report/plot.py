"""The figures as a picture: a bar for each, as a share of what it is allowed to be."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.figure import Figure as Picture

from benchmarks.claims.figure import Figure

WITHIN, ABOVE = "#3a7d44", "#b3261e"
ROW_INCHES = 0.26
TITLE_CHARACTERS = 150
MOST_SHOWN = 3.0
"""Longer bars end here; their number stands beside them."""


def save_plot(figures: Sequence[Figure], path: Path, title: str) -> None:
    """Write a PNG, or what else the name's end says, with the figures that have a bound and were measured."""
    shown = [figure for figure in figures if figure.share is not None]
    picture = Picture(figsize=(11, 1.2 + ROW_INCHES * len(shown)), layout="constrained")
    axes = picture.add_subplot()
    shares = [figure.share or 0.0 for figure in shown]
    axes.barh(
        [f"{figure.claim}: {figure.what}" for figure in shown],
        [min(share, MOST_SHOWN) for share in shares],
        color=[WITHIN if share <= 1 else ABOVE for share in shares],
    )
    for row, share in enumerate(shares):
        axes.text(min(share, MOST_SHOWN), row, f" {share:.2f}", va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.margins(x=0.08, y=0.01)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("share of the bound; 1 is the bound, less is better")
    picture.suptitle(fill(title, TITLE_CHARACTERS), fontsize=9, x=0.01, ha="left")
    picture.savefig(path, dpi=120)
