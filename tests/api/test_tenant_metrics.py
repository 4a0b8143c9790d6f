"""`GET /metrics` of tenants: what each is promised, what it holds, and who waits."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from access.token_files import add_token, bearing
from api.support import make_api, make_lease, make_pool
from waiting import wait_for

FIGURES = ("held_blocks", "guaranteed_blocks", "max_blocks", "leases", "sequences")


def scrape(api: TestClient, token: str | None = None) -> dict[str, dict[tuple[str, str], float]]:
    """By metric, the samples that have a tenant, by pool and tenant."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for family in text_string_to_metric_families(api.get("/metrics", headers=bearing(token)).text):
        for sample in family.samples:
            if "tenant" in sample.labels:
                place = sample.labels["pool"], sample.labels["tenant"]
                found.setdefault(sample.name.removeprefix("blockyard_pool_"), {})[place] = sample.value
    return found


def test_a_pool_without_tenants_tells_of_waiting_calls_alone() -> None:
    with make_api() as api:
        make_lease(api, make_pool(api))
        assert scrape(api) == {"waiting_calls": {("pool", ""): 0}}


def test_a_tenant_is_told_of_with_its_quota_and_what_it_has(tmp_path: Path) -> None:
    operator = add_token(tmp_path / "tokens", "admin")
    tenant = add_token(tmp_path / "tokens", "allocate", tenant="acme")
    with make_api(token_file=tmp_path / "tokens") as api:
        api.headers.update(bearing(operator))
        pool = make_pool(api)
        make_lease(api, pool)
        quota = {"guaranteed_blocks": 2, "max_blocks": 5}
        assert api.put(f"{pool}/tenants/acme", json=quota).status_code == 200
        api.headers.update(bearing(tenant))
        lease = make_lease(api, pool)
        asked = {"lease_id": lease, "sequence_id": "a", "num_tokens": 9}
        assert api.post(f"{pool}/allocate", json=asked).status_code == 200
        found = scrape(api, operator)
    here = ("pool", "acme")
    assert [found[f"tenant_{figure}"] for figure in FIGURES] == [{here: n} for n in (3, 2, 5, 1, 1)]
    assert found["waiting_calls"] == {("pool", ""): 0, here: 0}


def test_a_tenant_without_a_bound_has_no_maximum() -> None:
    with make_api() as api:
        pool = make_pool(api)
        assert api.put(f"{pool}/tenants/acme", json={"guaranteed_blocks": 2}).status_code == 200
        found = scrape(api)
    assert found["tenant_guaranteed_blocks"] == {("pool", "acme"): 2}
    assert "tenant_max_blocks" not in found


def test_calls_that_wait_are_counted_while_they_do() -> None:
    with make_api() as api, ThreadPoolExecutor(1) as threads:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        held = api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 9}).json()
        asked = {"lease_id": lease, "num_blocks": 1, "wait_ms": 30_000}
        call = threads.submit(api.post, f"{pool}/blocks/allocate", json=asked)
        wait_for(lambda: scrape(api)["waiting_calls"] == {("pool", ""): 1})
        given_back = {"lease_id": lease, "block_ids": held["block_ids"]}
        assert api.post(f"{pool}/blocks/free", json=given_back).status_code == 200
        assert call.result().status_code == 200
        assert scrape(api)["waiting_calls"] == {("pool", ""): 0}
