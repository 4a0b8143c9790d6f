from concurrent.futures import ThreadPoolExecutor

import pytest

from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.tally import Tally


def make_tally(num_requests: int) -> Tally:
    return Tally([Request(num_tokens=16, block_hashes=[])] * num_requests, on_progress=lambda _: None)


def test_the_hit_rate_is_cached_by_input_tokens() -> None:
    tally = make_tally(4)
    tally.waited(0.001)
    for number in range(4):
        tally.served(number, 4 * number)
    outcome = tally.outcome(seconds=2.0)
    assert (outcome.cached_tokens, outcome.input_tokens, outcome.hit_rate) == (24, 64, 0.375)
    assert outcome.requests_per_s == 2


def test_the_series_ends_with_the_last_request() -> None:
    tally = make_tally(130)
    tally.waited(0.001)
    series = tally.outcome(seconds=1.0).hit_rate_series
    assert [point.num_requests for point in series] == [*range(3, 130, 3), 130]


@pytest.mark.parametrize(("percent", "expected_ms"), [("p50", 50), ("p99", 99)])
def test_a_percentile_is_a_latency_that_was_measured(percent: str, expected_ms: float) -> None:
    tally = make_tally(100)
    for milliseconds in range(100, 0, -1):
        tally.waited(milliseconds / 1000)
    assert getattr(tally.outcome(seconds=1.0), f"latency_{percent}_ms") == pytest.approx(expected_ms)


def test_threads_that_note_at_once_lose_nothing() -> None:
    tally = make_tally(4)

    def note(_: int) -> None:
        for _ in range(1_000):
            tally.waited(0.001)
            tally.refused()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(note, range(8)))
    assert tally.outcome(seconds=1.0).num_refused == 8_000
