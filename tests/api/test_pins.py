"""Pins and bulk prefixes over HTTP."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from access.token_files import add_token, bearing
from api.support import block_hashes, make_api, make_lease, make_pool
from blockyard.server.app import create_app
from blockyard.server.settings import Settings
from waiting import wait_for


def cache(api: TestClient, pool: str, *numbers: int) -> None:
    """Have the blocks of these hashes cached, in a sequence that is free by then."""
    lease = {"lease_id": make_lease(api, pool), "sequence_id": f"s{numbers}"}
    num_tokens = 4 * len(numbers) + 1
    content = {"num_tokens": num_tokens, "block_hashes": block_hashes(*numbers)}
    assert api.post(f"{pool}/allocate", json={**lease, **content}).status_code == 200
    api.post(f"{pool}/commit", json={**lease, "num_computed_tokens": num_tokens})
    api.post(f"{pool}/free", json={"lease_id": lease["lease_id"], "sequence_ids": [lease["sequence_id"]]})


def test_a_pin_is_made_listed_renewed_and_ended() -> None:
    with make_api() as api:
        pool = make_pool(api)
        cache(api, pool, 1, 2)
        asked = {"block_hashes": block_hashes(1, 2), "ttl_ms": 60_000, "hard": True}
        reply = api.post(f"{pool}/pins", json=asked, headers={"Idempotency-Key": "once"})
        assert reply.status_code == 201
        pin = reply.json()
        assert pin.items() >= {"epoch": 1, "hard": True, "num_tokens": 8, "num_cached_tokens": 8}.items()
        assert api.post(f"{pool}/pins", json=asked, headers={"Idempotency-Key": "once"}).json() == pin
        soft = api.post(f"{pool}/pins", json={**asked, "hard": False}).json()
        listed = api.get(f"{pool}/pins").json()["pins"]
        assert [(each["pin_id"], each["num_held_blocks"]) for each in listed] == [
            (pin["pin_id"], 2),
            (soft["pin_id"], 0),
        ]
        renewed = api.post(f"{pool}/pins/{pin['pin_id']}/renew", json={"ttl_ms": 90_000}).json()
        assert renewed["expires_at_ms"] >= pin["expires_at_ms"] + 30_000
        assert api.post(f"{pool}/pins/{soft['pin_id']}/renew").json()["ttl_ms"] == 60_000
        stats = api.get(f"{pool}/stats").json()
        figures = {"num_pins": 2, "num_soft_pinned_blocks": 2, "num_hard_pinned_blocks": 2}
        assert stats.items() >= figures.items()
        assert api.delete(pool).json()["code"] == "pool_in_use"
        assert api.delete(f"{pool}/pins/{pin['pin_id']}").json() == {"epoch": 1, "num_freed_blocks": 2}
        assert api.delete(f"{pool}/pins/{pin['pin_id']}").json()["code"] == "pin_not_found"


def test_a_pin_ends_by_itself_where_there_is_no_lease() -> None:
    with make_api() as api:
        pool = make_pool(api)
        api.post(f"{pool}/pins", json={"block_hashes": block_hashes(1), "ttl_ms": 1})
        wait_for(lambda: api.get(f"{pool}/stats").json()["num_pins"] == 0)
        assert api.get(f"{pool}/pins").json() == {"epoch": 1, "pins": []}


def test_all_of_a_prefixs_full_blocks_count_and_nothing_is_touched() -> None:
    with make_api() as api:
        pool = make_pool(api)
        cache(api, pool, 1, 2, 3)
        before = api.get(f"{pool}/stats").json()
        asked: list[dict[str, Any]] = [
            {"block_hashes": block_hashes(1, 2, 3)},
            {"block_hashes": block_hashes(1, 2, 3), "num_tokens": 11},
            {"block_hashes": block_hashes(1, 2, 9)},
            {"block_hashes": block_hashes(9)},
            {"token_ids": [1, 2, 3]},
        ]
        reply = api.post(f"{pool}/prefixes", json={"prefixes": asked}).json()
        assert reply == {"epoch": 1, "num_cached_tokens": [12, 8, 8, 0, 0]}
        assert api.get(f"{pool}/stats").json() == before
        mixed = [{}, {"block_hashes": block_hashes(1), "token_ids": [1]}]
        refused = api.post(f"{pool}/prefixes", json={"prefixes": mixed}).json()
        assert refused["errors"][0]["field"] == "prefixes.1.block_hashes"


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        ("prefixes", {"prefixes": [{}, {}, {}]}, "max_prefixes_per_call"),
        ("prefixes", {"prefixes": [{}] * (2**16 + 1)}, "max_prefixes_per_call"),
        ("pins", {"block_hashes": block_hashes(1), "ttl_ms": 1_000}, "max_pins_per_tenant"),
        ("pins", {"block_hashes": block_hashes(*range(5)), "ttl_ms": 1_000}, "max_pinned_hashes_per_tenant"),
        ("pins", {"token_ids": [1] * 20, "ttl_ms": 1_000}, "max_pinned_hashes_per_tenant"),
    ],
)
def test_what_is_over_a_limit_is_refused(path: str, body: dict[str, Any], limit: str) -> None:
    with make_api(max_prefixes_per_call=2, max_pins_per_tenant=1, max_pinned_hashes_per_tenant=4) as api:
        pool = make_pool(api)
        if limit == "max_pins_per_tenant":
            assert api.post(f"{pool}/{path}", json=body).status_code == 201
        reply = api.post(f"{pool}/{path}", json=body)
        assert (reply.status_code, reply.json()["code"], reply.json()["limit"]) == (
            429,
            "limit_exceeded",
            limit,
        )


def test_tenants_see_their_own_pins_and_an_operator_all(tmp_path: Any) -> None:
    file = tmp_path / "tokens.json"
    operator = add_token(file, "admin")
    tokens = {name: add_token(file, "allocate", tenant=name) for name in ("crimson", "azure")}
    with TestClient(create_app(Settings(token_file=str(file)))) as api:
        api.put("/v1/pools/pool", json={"num_blocks": 10, "block_size": 4}, headers=bearing(operator))
        asked = {"block_hashes": block_hashes(1), "ttl_ms": 60_000}
        for token in tokens.values():
            api.post("/v1/pools/pool/pins", json=asked, headers=bearing(token))
        for token, expected in ((tokens["azure"], ["azure"]), (operator, ["crimson", "azure"])):
            listed = api.get("/v1/pools/pool/pins", headers=bearing(token)).json()["pins"]
            assert [pin["tenant"] for pin in listed] == expected
