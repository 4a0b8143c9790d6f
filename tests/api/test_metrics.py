"""`GET /metrics`: the pools' statistics in the forms that Prometheus reads."""

import shutil
import subprocess

import pytest
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from api.support import block_hashes, make_api, make_lease, make_pool
from blockyard.core.residency import Residency
from blockyard.core.statistics import Counters
from blockyard.server.metrics import COUNTER_HELP, POOLS_A_SLICE, RESIDENCY_HELP


def scrape(api: TestClient) -> dict[tuple[str, ...], float]:
    """Every sample of the text form, by its name and the values of its labels in the labels' order."""
    reply = api.get("/metrics")
    assert reply.status_code == 200
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


def allocate(api: TestClient, pool: str, lease_id: str, sequence_id: str, num_tokens: int) -> None:
    body = {"lease_id": lease_id, "sequence_id": sequence_id, "num_tokens": num_tokens}
    assert api.post(f"{pool}/allocate", json={**body, "block_hashes": []}).status_code == 200


def test_figures_are_those_of_stats() -> None:
    with make_api() as api:
        pool = make_pool(api, "busy")
        lease_id = make_lease(api, pool)
        allocate(api, pool, lease_id, "a", num_tokens=9)
        known = {"num_computed_tokens": 9, "block_hashes": block_hashes(1, 2)}
        api.post(f"{pool}/commit", json={"lease_id": lease_id, "sequence_id": "a", **known})
        for hashes, hard in ((block_hashes(1, 2), False), (block_hashes(1), True)):
            api.post(f"{pool}/pins", json={"block_hashes": hashes, "hard": hard, "ttl_ms": 60_000})
        stats = api.get(f"{pool}/stats").json()
        samples = scrape(api)
    assert samples["blockyard_pool_blocks", "busy", "held"] == stats["num_held_blocks"] == 3
    assert samples["blockyard_pool_blocks", "busy", "free"] == stats["num_free_blocks"]
    assert samples["blockyard_pool_cached_blocks", "busy"] == stats["num_cached_blocks"] == 2
    assert samples["blockyard_pool_usage_ratio", "busy"] == stats["usage"]
    assert samples["blockyard_pool_prefix_hit_ratio", "busy"] == stats["hit_rate"] == 0.0
    assert samples["blockyard_pool_eviction_weight", "busy"] == stats["eviction_weight"]
    assert samples["blockyard_pool_sequences", "busy"] == stats["num_sequences"] == 1
    assert samples["blockyard_pool_leases", "busy"] == stats["num_leases"] == 1
    assert samples["blockyard_pool_pins", "busy"] == stats["num_pins"] == 2
    for kind, num_blocks in (("soft", 2), ("hard", 1)):
        pinned = samples["blockyard_pool_pinned_blocks", kind, "busy"]
        assert pinned == stats[f"num_{kind}_pinned_blocks"] == num_blocks
    assert samples["blockyard_pool_epoch", "busy"] == stats["epoch"]
    for counter, value in stats["counters"].items():
        assert samples[f"blockyard_pool_{counter.removeprefix('num_')}_total", "busy"] == value


def test_the_states_of_blocks_add_up_to_all_blocks() -> None:
    with make_api() as api:
        pool = make_pool(api)
        allocate(api, pool, make_lease(api, pool), "a", num_tokens=9)
        samples = scrape(api)
    assert sum(samples["blockyard_pool_blocks", "pool", state] for state in ("free", "held", "null")) == 10


def test_blocks_in_host_memory_are_shown_where_there_are_any() -> None:
    device = {"kind": "full_attention", "block_size": 4}
    host = {**device, "is_host_resident": True}
    with make_api() as api:
        pool = make_pool(api, "both", groups=[device, host], num_host_blocks=20)
        make_pool(api, "device")
        allocate(api, pool, make_lease(api, pool), "a", num_tokens=9)
        samples = scrape(api)
    found = {key[1:]: value for key, value in samples.items() if key[0] == "blockyard_pool_host_blocks"}
    assert found == {("both", "free"): 16, ("both", "held"): 3, ("both", "null"): 1}


def test_the_hit_ratio_is_absent_while_there_are_no_queries() -> None:
    with make_api() as api:
        make_pool(api)
        samples = scrape(api)
    assert not [key for key in samples if key[0] == "blockyard_pool_prefix_hit_ratio"]


def test_the_weight_of_eviction_is_absent_for_lru() -> None:
    with make_api() as api:
        pool = make_pool(api, eviction="lru")
        stats = api.get(f"{pool}/stats").json()
        samples = scrape(api)
    assert (stats["eviction"], stats["eviction_weight"]) == ("lru", None)
    assert not [key for key in samples if key[0] == "blockyard_pool_eviction_weight"]


def test_a_deleted_pool_is_no_longer_shown() -> None:
    with make_api() as api:
        api.delete(make_pool(api, "gone"))
        make_pool(api, "kept")
        pools = {key[1] for key in scrape(api) if key[0] == "blockyard_pool_epoch"}
    assert pools == {"kept"}


def test_every_pool_is_shown_however_many_slices_they_fill() -> None:
    num_pools = 2 * POOLS_A_SLICE + 1
    with make_api() as api:
        for number in range(num_pools):
            make_pool(api, f"pool-{number}")
        samples = scrape(api)
    assert samples["blockyard_pools",] == num_pools
    assert len([key for key in samples if key[0] == "blockyard_pool_epoch"]) == num_pools


def test_a_server_without_pools_says_its_version_and_its_memory() -> None:
    with make_api() as api:
        samples = scrape(api)
    names = {key[0] for key in samples}
    assert {"blockyard_build_info", "process_resident_memory_bytes"} <= names


def test_a_watched_block_that_is_hit_and_evicted_is_counted_once_in_each_histogram() -> None:
    body = {"num_tokens": 9, "block_hashes": ["01" * 32, "02" * 32]}
    with make_api() as api:
        pool = make_pool(api, "busy", publish="on_allocate")
        lease = {"lease_id": make_lease(api, pool)}
        for name in ("a", "b"):
            reply = api.post(f"{pool}/allocate", json={**lease, **body, "sequence_id": name})
            assert reply.json()["block_ids"][0][0] == 1
            api.post(f"{pool}/free", json={**lease, "sequence_ids": [name]})
        allocate(api, pool, lease["lease_id"], "all blocks", num_tokens=9 * 4)
        samples = scrape(api)
    spans = ("lifetime", "idle_before_evict", "reuse_gap")
    assert [samples[f"blockyard_pool_block_{span}_seconds_count", "busy"] for span in spans] == [1, 1, 1]


def test_every_histogram_of_spans_is_explained() -> None:
    assert set(Residency(0).histograms()) == set(RESIDENCY_HELP)


def test_every_counter_is_explained() -> None:
    assert {*Counters().to_state(), "num_evicted_blocks"} == set(COUNTER_HELP)


def test_openmetrics_is_given_to_whoever_accepts_it() -> None:
    with make_api() as api:
        pool = make_pool(api)
        make_lease(api, pool)
        reply = api.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(reply.text)}  # type: ignore[no-untyped-call]
    assert families["blockyard_pool_created_leases"].samples[0].value == 1


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html",
        "application/json",
        "text/plain;version=0.0.4",
        "text/plain;version=none",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;version=1.x",
    ],
)
def test_any_other_accept_header_gets_the_text_form(accept: str) -> None:
    with make_api() as api:
        reply = api.get("/metrics", headers={"accept": accept})
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_mend() -> None:
    with make_api() as api:
        pool = make_pool(api)
        allocate(api, pool, make_lease(api, pool), "a", num_tokens=9)
        text = api.get("/metrics").text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
