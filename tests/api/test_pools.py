"""Pools over HTTP: making, describing, watching, deleting them; the OpenAPI document."""

import pytest
from fastapi.testclient import TestClient

from api.support import block_hashes, make_api, make_lease, make_pool


def test_a_pool_is_made_once_and_found_again() -> None:
    body = {"num_blocks": 10, "block_size": 4}
    with make_api() as api:
        first, again = (api.put("/v1/pools/pool", json=body) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()


def test_defaults_and_their_values_are_the_same_configuration() -> None:
    with make_api() as api:
        api.put("/v1/pools/pool", json={"num_blocks": 10, "block_size": 4})
        spelled_out = {
            "num_blocks": 10,
            "groups": [{"kind": "full_attention", "block_size": 4}],
            "publish": "on_commit",
        }
        assert api.put("/v1/pools/pool", json=spelled_out).status_code == 200


def eviction_of(api: TestClient, **config: str) -> str:
    return str(api.get(make_pool(api, f"pool-{len(config)}", **config)).json()["eviction"])


def test_what_evicts_follows_from_when_blocks_are_published_unless_it_is_told() -> None:
    with make_api() as api:
        assert eviction_of(api) == "adaptive"
        assert eviction_of(api, publish="on_allocate") == "lru"
        assert eviction_of(api, publish="on_allocate", eviction="adaptive") == "adaptive"


@pytest.mark.parametrize(("stands", "other"), [("lru", "adaptive"), ("adaptive", "lru")])
def test_a_pool_that_stands_is_found_with_its_eviction_where_none_is_told(stands: str, other: str) -> None:
    body = {"num_blocks": 10, "block_size": 4}
    with make_api() as api:
        make_pool(api, eviction=stands)
        again = api.put("/v1/pools/pool", json=body)
        assert (again.status_code, again.json()["eviction"]) == (200, stands)
        assert api.put("/v1/pools/pool", json={**body, "eviction": stands}).status_code == 200
        assert api.put("/v1/pools/pool", json={**body, "eviction": other}).json()["code"] == "pool_exists"
        assert api.put("/v1/pools/pool", json={**body, "watermark_blocks": 1}).status_code == 409


def test_a_pool_is_described_with_every_default() -> None:
    groups = [
        {"kind": "full_attention", "block_size": 32},
        {"kind": "sliding_window", "block_size": 48, "sliding_window": 100},
    ]
    with make_api() as api:
        make_pool(api, groups=groups)
        described = api.get("/v1/pools/pool").json()
    assert described == {
        "pool": "pool",
        "epoch": 1,
        "num_blocks": 10,
        "groups": groups,
        "scheduler_block_size": 96,
        "hash_block_size": 16,
        "max_model_len": None,
        "max_in_flight_tokens": 8192,
        "max_replies": 256,
        "share_across_tenants": False,
        "enable_prefix_caching": True,
        "hash_algorithm": "blake2b",
        "extra_key_form": "tagged",
        "publish": "on_commit",
        "eviction": "adaptive",
        "watermark_blocks": 0,
        "worker_timeout_ms": 5_000,
        "needs_all_workers": True,
        "num_ranks": None,
        "num_host_blocks": None,
        "prefix_cache_retention_interval": None,
        "events": None,
    }


def test_all_pools_are_listed() -> None:
    with make_api() as api:
        make_pool(api, "one")
        make_pool(api, "two")
        assert [pool["pool"] for pool in api.get("/v1/pools").json()["pools"]] == ["one", "two"]


def test_a_pool_in_use_is_deleted_only_by_force() -> None:
    with make_api() as api:
        pool = make_pool(api)
        api.post(f"{pool}/blocks/allocate", json={"lease_id": make_lease(api, pool), "num_blocks": 1})
        assert api.delete(pool).json()["code"] == "pool_in_use"
        assert api.delete(pool, params={"force": "true"}).status_code == 200
        assert api.get(pool).json()["code"] == "pool_not_found"


def test_a_pool_that_is_only_cached_may_be_deleted() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        lease = make_lease(api, pool)
        ask = {"lease_id": lease, "sequence_id": "s", "num_tokens": 8, "block_hashes": block_hashes(1, 2)}
        api.post(f"{pool}/allocate", json=ask)
        api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": ["s"]})
        assert api.get(f"{pool}/stats").json()["num_cached_blocks"] == 2
        assert api.delete(pool).status_code == 200


def test_no_queries_yet_is_told_apart_from_no_hits() -> None:
    with make_api() as api:
        pool = make_pool(api)
        assert api.get(f"{pool}/stats").json()["hit_rate"] is None
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s", "num_tokens": 8}
        api.post(f"{pool}/allocate", json=ask)
        assert api.get(f"{pool}/stats").json()["hit_rate"] == 0.0


def test_stats_count_blocks_sequences_and_leases() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        lease = make_lease(api, pool)
        for name in ("a", "b"):
            ask = {
                "lease_id": lease,
                "sequence_id": name,
                "num_tokens": 9,
                "block_hashes": block_hashes(1, 2),
            }
            api.post(f"{pool}/allocate", json=ask)
        stats = api.get(f"{pool}/stats").json()
    assert stats["num_blocks"] == 10
    assert stats["num_free_blocks"] == 5
    assert stats["num_held_blocks"] == 4
    assert stats["num_cached_blocks"] == 2
    assert stats["usage"] == 4 / 9
    assert stats["hit_rate"] == 8 / 18
    assert (stats["num_sequences"], stats["num_leases"]) == (2, 1)
    assert stats["counters"]["num_hit_tokens"] == 8


def test_an_audit_recounts_holders_and_blocks() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool, holder="somebody")
        api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 8})
        api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 1})
        assert api.get(f"{pool}/audit").json() == {
            "epoch": 1,
            "ok": True,
            "num_blocks": 10,
            "num_free_blocks": 6,
            "num_held_blocks": 3,
            "num_null_blocks": 1,
            "holders": [
                {"lease_id": lease, "tenant": "", "holder": "somebody", "num_sequences": 1, "num_blocks": 3}
            ],
            "pins": [],
            "problems": [],
        }


def test_the_prefix_cache_is_reset_only_while_nothing_is_held() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        lease = make_lease(api, pool)
        prompt = {"num_tokens": 9, "block_hashes": block_hashes(1, 2)}
        api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", **prompt})
        assert api.post(f"{pool}/reset_prefix_cache", json={}).json() == {"epoch": 1, "ok": False}
        api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": ["s"]})
        assert api.post(f"{pool}/lookup", json=prompt).json()["num_cached_tokens"] == 8
        assert api.post(f"{pool}/reset_prefix_cache").json() == {"epoch": 1, "ok": True}
        assert api.post(f"{pool}/lookup", json=prompt).json()["num_cached_tokens"] == 0
        assert api.get(f"{pool}/stats").json()["hit_rate"] is None


def test_the_document_describes_every_route() -> None:
    with make_api() as api:
        document = api.get("/openapi.json").json()
        served = {
            (method.lower(), route.path.replace(":path}", "}"))
            for route in api.app.api.routes  # type: ignore[attr-defined]
            for method in getattr(route, "methods", None) or ()
            if route.path.startswith("/v1") and method != "HEAD"
        }
    described = {(method, path) for path, item in document["paths"].items() for method in item}
    assert served <= described


def test_every_reference_in_the_document_leads_somewhere() -> None:
    def references(value: object) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(item) for item in value.values()))
        if isinstance(value, list):
            return set().union(*(references(item) for item in value))
        return set()

    with make_api() as api:
        document = api.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {reference.rsplit("/", 1)[1] for reference in references(document)} <= set(schemas)


def test_the_documentation_page_needs_no_internet() -> None:
    with make_api() as api:
        page = api.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page


def test_a_wrong_option_of_events_is_named_as_it_stands_in_the_body() -> None:
    with make_api() as api:
        for events, field in (({"bogus": 1}, "events.bogus"), ({"rank": -1}, "events.rank"), (7, "events")):
            body = {"num_blocks": 10, "block_size": 4, "events": events}
            reply = api.put("/v1/pools/pool", json=body)
            assert reply.status_code == 422
            assert [error["field"] for error in reply.json()["errors"]] == [field]


def test_events_are_on_or_off_in_a_word_or_set_in_detail() -> None:
    with make_api() as api:
        given = {"no": False, "none": None, "yes": True, "set": {"rank": 3}}
        for name, events in given.items():
            body = {"num_blocks": 10, "block_size": 4, "events": events}
            assert api.put(f"/v1/pools/{name}", json=body).status_code == 201
        found = {pool["pool"]: pool["events"] for pool in api.get("/v1/pools").json()["pools"]}
    default = {"topic": None, "hash_form": "int64", "rank": None, "needs_token_ids": False}
    assert found == {"no": None, "none": None, "yes": default, "set": {**default, "rank": 3}}
