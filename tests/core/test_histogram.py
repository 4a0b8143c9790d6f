"""Values are counted by the range that they lie in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.histogram import Histogram

BOUNDS = (1.0, 2.0, 4.0)


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(0, 10))))
def test_each_value_is_counted_in_the_first_range_whose_end_is_not_below_it(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    ends = [next((bound for bound in BOUNDS if value <= bound), None) for value in values]
    assert histogram.counts == [ends.count(end) for end in (*BOUNDS, None)]
    assert histogram.sum == pytest.approx(sum(values))


def test_a_copy_stays_as_it_is() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(3)
    copy = histogram.copy()
    histogram.observe(5)
    assert (copy.bounds, copy.counts, copy.sum) == (BOUNDS, [0, 0, 1, 0], 3)
    assert (histogram.counts, histogram.sum) == ([0, 0, 1, 1], 8)
