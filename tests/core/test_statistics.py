"""The hit rate over the last thousand requests."""

from blockyard.core.statistics import WINDOW_REQUESTS, HitWindow


def test_no_queries_is_not_a_rate() -> None:
    assert HitWindow().hit_rate is None


def test_no_hits_is_a_rate_of_zero() -> None:
    window = HitWindow()
    window.add(10, 0)
    assert window.hit_rate == 0.0


def test_tokens_are_weighed_not_requests() -> None:
    window = HitWindow()
    window.add(90, 0)
    window.add(10, 10)
    assert window.hit_rate == 0.1


def test_only_the_last_thousand_requests_count() -> None:
    window = HitWindow()
    window.add(10, 10)
    for _ in range(WINDOW_REQUESTS):
        window.add(10, 5)
    assert window.hit_rate == 0.5


def test_a_window_survives_a_snapshot() -> None:
    window = HitWindow()
    for number in range(1, WINDOW_REQUESTS + 5):
        window.add(number, number // 2)
    restored = HitWindow.from_state(window.to_state())
    assert restored.hit_rate == window.hit_rate
    assert restored.to_state() == window.to_state()
