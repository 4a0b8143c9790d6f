"""A figure: something measured beside something else in one run, and what it is allowed to be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the report.

    Attributes:
        claim: The claim that it belongs to.
        what: What was measured.
        value: What the bound is for: a ratio, unless ``unit`` says otherwise; None where it was skipped.
        bound: What ``value`` may be; None where nothing is claimed.
        is_floor: Whether ``value`` has to be at least ``bound``, and not at most.
        unit: Of ``value``; ``x`` for a ratio.
        ours: Our side, as text with its unit.
        beside: The other side, likewise.
        note: What there is to add; why it was skipped.
    """

    claim: str
    what: str
    value: float | None = None
    bound: float | None = None
    is_floor: bool = False
    unit: str = "x"
    ours: str = ""
    beside: str = ""
    note: str = ""

    @property
    def share(self) -> float | None:
        """How much of what is allowed is used up: 1 is the bound, and less is better."""
        if self.value is None or self.bound is None:
            return None
        return self.bound / self.value if self.is_floor else self.value / self.bound

    @property
    def verdict(self) -> str:
        """One word for it."""
        if self.value is None:
            return "skipped"
        share = self.share
        return "" if share is None else "within" if share <= 1 else "missed"

    def measured(
        self,
        ours: Sequence[float],
        beside: Sequence[float],
        *,
        unit: str = "ms",
        is_speed: bool = False,
        other: str = "",
    ) -> "Figure":
        """This row with the median over the rounds of ours to what was measured beside it, round by round.

        Args:
            ours: One value a round.
            beside: As many; empty where they could not be had.
            unit: Of these values.
            is_speed: Whether to tell how many times as fast we are, where the values are times.
            other: The name of what is beside.
        """
        pairs = list(zip(ours, beside, strict=True)) if beside else []
        ratios = [theirs / own if is_speed else own / theirs for own, theirs in pairs]
        return replace(
            self,
            value=median(ratios) if ratios else None,
            ours=with_unit(median(ours), unit),
            beside=f"{with_unit(median(beside), unit)} {other}".rstrip() if beside else "",
        )


def with_unit(value: float, unit: str) -> str:
    """Three digits or more, and the unit."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f} {unit}"
