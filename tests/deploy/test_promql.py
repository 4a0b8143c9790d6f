"""What expressions name: the tests of rules and dashboard believe it."""

import pytest

from deploy.promql import Selector, selectors


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("up", {"up": ()}),
        ('up{job="a", instance=~"$instance"} == 0', {"up": ("instance", "job")}),
        ("rate(a_total[5m]) / (rate(b_total[$__rate_interval]) > 0)", {"a_total": (), "b_total": ()}),
        ('sum by (job, le) (rate(a_bucket{x!="}", y!~"("}[5m]))', {"a_bucket": ("x", "y")}),
        ("sum(a) without (b) and on (c) d unless e", {"a": (), "d": (), "e": ()}),
        ("0.5 * avg_over_time(pool:a:ratio_rate5m[1d] offset 1h) + 1e9", {"pool:a:ratio_rate5m": ()}),
        ("histogram_quantile(0.99, rate(a_bucket[5m]))", {"a_bucket": ()}),
    ],
)
def test_metrics_are_told_from_functions_labels_ranges_and_numbers(
    expression: str, expected: dict[str, tuple[str, ...]]
) -> None:
    assert set(selectors(expression)) == {
        Selector(metric, frozenset(labels)) for metric, labels in expected.items()
    }
