"""Latency of the last seconds, told from histograms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.server.latency import SAMPLE_S, WINDOW_S, Counts, LatencyWindow, quantile

BOUNDS = (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 10, 10, 0], 0.75, 3.0),
        ([0, 10, 10, 0], 0.5, 2.0),
        ([10, 0, 0, 0], 0.5, 0.5),
        ([0, 0, 0, 1], 0.99, 4.0),
        ([99, 0, 1, 0], 0.99, 1.0),
    ],
)
def test_a_quantile_lies_evenly_in_its_range(counts: list[int], share: float, expected: float) -> None:
    assert quantile(BOUNDS, counts, share) == expected


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), st.floats(0.01, 1))
def test_a_quantile_has_its_share_of_values_below_it(counts: list[int], share: float) -> None:
    value = quantile(BOUNDS, counts, share)
    surely_below = sum(n for n, end in zip(counts, (*BOUNDS, float("inf")), strict=True) if end <= value)
    surely_above = sum(n for n, begin in zip(counts, (0.0, *BOUNDS), strict=True) if begin >= value)
    rank = share * sum(counts)
    assert surely_below <= rank + 1e-6 or value == BOUNDS[-1]
    assert sum(counts) - surely_above >= rank - 1e-6 or value == BOUNDS[-1]


class Calls:
    """A window over calls that are made by hand, at a time that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.counts: Counts = {"step": [0, 0, 0, 0], "free": [0, 0, 0, 0]}
        self.window = LatencyWindow(
            BOUNDS, lambda: {call: list(ranges) for call, ranges in self.counts.items()}, lambda: self.now_s
        )

    def make(self, call: str, number: int) -> None:
        self.counts[call][0] += number

    def after(self, seconds: float) -> dict[str, int]:
        """How many calls are told of, by kind."""
        self.now_s += seconds
        return {each.call: each.num_calls for each in self.window.latest()}


def test_calls_before_anybody_looked_are_not_told() -> None:
    calls = Calls()
    calls.make("step", 5)
    assert calls.after(0) == {}
    calls.make("step", 2)
    assert calls.after(SAMPLE_S) == {"step": 2}


def test_calls_leave_the_window() -> None:
    calls = Calls()
    calls.after(0)
    calls.make("step", 1)
    for _ in range(int(WINDOW_S / SAMPLE_S)):
        assert calls.after(SAMPLE_S) == {"step": 1}
    assert calls.after(SAMPLE_S) == {}


def test_after_a_long_time_without_a_look_nothing_is_told() -> None:
    calls = Calls()
    calls.after(0)
    calls.make("free", 1)
    assert calls.after(WINDOW_S * 10) == {}


def test_within_a_second_all_are_told_the_same() -> None:
    calls = Calls()
    calls.after(0)
    calls.make("step", 1)
    assert calls.after(SAMPLE_S) == {"step": 1}
    calls.make("step", 1)
    assert calls.after(SAMPLE_S / 2) == {"step": 1}
