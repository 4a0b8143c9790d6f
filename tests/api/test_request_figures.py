"""Durations of requests by route and outcome, and how many are in flight."""

from bisect import bisect_right

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from api.support import make_api, make_lease, make_pool
from blockyard.core.histogram import Histogram
from blockyard.server.histogram import add_histogram
from blockyard.server.request_figures import NO_ROUTE, RequestFigures, outcome

POOL = "/v1/pools/{pool}"


def counts(api: TestClient) -> dict[tuple[str, str], float]:
    """Requests by route and outcome, where there were any."""
    return {
        (sample.labels["route"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(api.get("/metrics").text)
        for sample in family.samples
        if sample.name == "blockyard_request_duration_seconds_count" and sample.value
    }


def test_requests_are_counted_by_the_template_of_their_route() -> None:
    with make_api() as api:
        for name in ("one", "two"):
            pool = make_pool(api, name)
            lease = make_lease(api, pool)
            assert api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": []}).status_code == 200
            assert api.post(f"{pool}/leases/{lease}/renew").status_code == 200
            assert api.get(f"{pool}/sequences/a/b").status_code == 404
            assert api.get("/healthz").status_code == 200
        found = counts(api)
    assert found == {
        (POOL, "ok"): 2,
        (f"{POOL}/leases", "ok"): 2,
        (f"{POOL}/free", "ok"): 2,
        (f"{POOL}/leases/{{lease_id}}/renew", "ok"): 2,
        (f"{POOL}/sequences/{{sequence_id}}", "refused"): 2,
        ("/healthz", "ok"): 2,
    }


def test_unknown_paths_are_one_route_however_many_there_are() -> None:
    with make_api() as api:
        for number in range(20):
            assert api.get(f"/nowhere/{number}").status_code == 404
            assert api.post(f"/v1/pools/pool-{number}/nothing").status_code == 404
        assert counts(api) == {(NO_ROUTE, "refused"): 40}


def test_calls_to_pools_that_are_not_there_make_no_routes_of_their_own() -> None:
    with make_api() as api:
        for number in range(20):
            assert api.post(f"/v1/pools/{number}/allocate", content=b"?").status_code == 422
            assert api.get(f"/v1/pools/{number}/stats").status_code == 404
        assert counts(api) == {(f"{POOL}/allocate", "refused"): 20, (f"{POOL}/stats", "refused"): 20}


def test_our_own_mistakes_have_an_outcome_of_their_own() -> None:
    with make_api() as api:
        pool = make_pool(api)
        next(iter(api.app.pools))[1].audit = None  # type: ignore[attr-defined]
        assert api.get(f"{pool}/audit").status_code == 500
        assert counts(api)[f"{POOL}/audit", "failed"] == 1


def test_failures_are_shown_as_none_from_a_routes_first_request_on() -> None:
    with make_api() as api:
        api.get("/healthz")
        text = api.get("/metrics").text
    line = 'blockyard_request_duration_seconds_count{outcome="failed",route="/healthz"} 0.0'
    assert line in text.splitlines()


def test_what_is_not_taken_at_the_moment_has_an_outcome_of_its_own() -> None:
    with make_api() as api:
        api.app.readiness.end()  # type: ignore[attr-defined]
        assert api.get("/v1/pools").status_code == 503
        api.app.readiness.begin()  # type: ignore[attr-defined]
        assert counts(api) == {(NO_ROUTE, "unavailable"): 1}


def test_a_scrape_sees_itself_in_flight_and_nothing_else() -> None:
    with make_api() as api:
        make_pool(api)
        assert "blockyard_requests_in_flight 1.0" in api.get("/metrics").text.splitlines()


def test_two_applications_in_one_process_count_for_themselves() -> None:
    with make_api() as one, make_api() as other:
        make_pool(one)
        assert counts(other) == {}
        assert counts(one) == {(POOL, "ok"): 1}


def test_a_server_without_a_journal_shows_none() -> None:
    with make_api() as api:
        make_pool(api)
        assert "blockyard_journal" not in api.get("/metrics").text


def test_each_status_has_one_outcome_of_five() -> None:
    found = {status: outcome(status) for status in (0, 200, 201, 307, 404, 409, 422, 500, 501, 503)}
    assert found == {
        0: "aborted",
        **dict.fromkeys((200, 201, 307), "ok"),
        **dict.fromkeys((404, 409, 422), "refused"),
        **dict.fromkeys((500, 501), "failed"),
        503: "unavailable",
    }


def test_statuses_of_one_outcome_are_one_histogram() -> None:
    figures = RequestFigures(num_in_flight=lambda: 0)
    for status in (404, 409, 409):
        figures.answered(None, status, 0.2)
    registry = CollectorRegistry()
    registry.register(figures)
    labels = {"route": NO_ROUTE, "outcome": "refused"}
    assert registry.get_sample_value("blockyard_request_duration_seconds_count", labels) == 3
    text = generate_latest(registry).decode()
    assert text.count('_sum{outcome="refused"') == 1


@given(st.lists(st.one_of(st.sampled_from([1.0, 2.0, 4.0]), st.floats(0, 10))))
def test_a_histogram_is_shown_with_each_value_in_every_bucket_that_reaches_it(values: list[float]) -> None:
    bounds = (1.0, 2.0, 4.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    family = HistogramMetricFamily("values", "Values.")
    add_histogram(family, histogram)
    found = {sample.name + sample.labels.get("le", ""): sample.value for sample in family.samples}
    in_order = sorted(values)
    assert found == {
        **{f"values_bucket{bound}": bisect_right(in_order, bound) for bound in bounds},
        "values_bucket+Inf": len(values),
        "values_count": len(values),
        "values_sum": pytest.approx(sum(values)),  # which some versions add up more exactly
    }
