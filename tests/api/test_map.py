"""`GET /v1/pools/{pool}/map`: every block as a byte, in a form that describes itself."""

import asyncio
import base64
import random
import zlib
from collections import Counter
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from api.support import block_hashes, make_api, make_lease, make_pool
from blockyard.core.holdings import SLICE_BLOCKS
from blockyard.server.app import create_app
from blockyard.server.settings import Settings


def read_map(api: TestClient, pool: str, **query: str) -> tuple[dict[str, Any], bytes]:
    """The reply, and its codes unpacked."""
    reply = api.get(f"{pool}/map", params=query)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found, zlib.decompress(base64.b64decode(found["codes"]))


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {entry["label"]: entry["num_blocks"] for entry in found["legend"] if entry["num_blocks"]}


def fill(api: TestClient, pool: str, seed: int) -> None:
    """Sequences of several leases, some of which share a prompt, some of which are freed again."""
    drawn = random.Random(seed)
    leases = [make_lease(api, pool, holder=f"scheduler {number}") for number in range(3)]
    for number in range(12):
        lease, num_blocks = drawn.choice(leases), drawn.randrange(1, 9)
        body = {"lease_id": lease, "sequence_id": str(number), "num_tokens": 4 * num_blocks}
        prompt = [1_000 * drawn.randrange(3) + place for place in range(num_blocks)]
        if api.post(f"{pool}/allocate", json={**body, "block_hashes": block_hashes(*prompt)}).is_success:
            if drawn.random() < 0.7:
                commit = {**body, "num_computed_tokens": body.pop("num_tokens")}
                del commit["num_tokens"]
                assert api.post(f"{pool}/commit", json=commit).is_success
            if drawn.random() < 0.4:
                freed = {"lease_id": lease, "sequence_ids": [str(number)]}
                assert api.post(f"{pool}/free", json=freed).is_success
    raw = {"lease_id": leases[0], "num_blocks": 3}
    api.post(f"{pool}/blocks/allocate", json=raw)


def test_a_map_tells_blocks_apart_by_state() -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {"lease_id": make_lease(api, pool), "sequence_id": "a", "num_tokens": 9}
        assert api.post(f"{pool}/allocate", json={**body, "block_hashes": block_hashes(1, 2)}).is_success
        found, codes = read_map(api, pool)
    assert {name: found[name] for name in ("epoch", "num_blocks", "by")} == {
        "epoch": 1,
        "num_blocks": 10,
        "by": "state",
    }
    assert list(codes) == [0, 3, 3, 3, 1, 1, 1, 1, 1, 1]
    assert [(entry["code"], entry["label"]) for entry in found["legend"]] == [
        (0, "null"),
        (1, "free"),
        (2, "free and cached"),
        (3, "held"),
        (4, "held and cached"),
    ]


def test_a_map_tells_blocks_apart_by_lease() -> None:
    with make_api() as api:
        pool = make_pool(api)
        leases = {make_lease(api, pool, holder=holder): holder for holder in ("one", "two")}
        for num_blocks, lease in zip((2, 4), leases, strict=True):
            raw = {"lease_id": lease, "num_blocks": num_blocks}
            assert api.post(f"{pool}/blocks/allocate", json=raw).is_success
        found, codes = read_map(api, pool, by="lease")
    assert list(codes) == [0, 6, 6, 5, 5, 5, 5, 1, 1, 1]
    assert counts(found) == {"null": 1, "free": 3, "two": 4, "one": 2}
    assert [leases[entry["lease_id"]] for entry in found["legend"] if entry["lease_id"]] == ["two", "one"]


@pytest.mark.parametrize("by", ["state", "lease"])
def test_maps_of_drawn_pools_count_what_audits_count(by: str) -> None:
    with make_api() as api:
        for seed in range(8):
            pool = make_pool(api, f"pool-{seed}", num_blocks=40)
            fill(api, pool, seed)
            check_counts(api.get(f"{pool}/audit").json(), *read_map(api, pool, by=by))


def check_counts(audit: dict[str, Any], found: dict[str, Any], codes: bytes) -> None:
    assert Counter(codes) == {
        entry["code"]: entry["num_blocks"] for entry in found["legend"] if entry["num_blocks"]
    }
    labels = counts(found)
    assert labels.pop("null") == audit["num_null_blocks"]
    assert labels.pop("free", 0) + labels.pop("free and cached", 0) == audit["num_free_blocks"]
    assert sum(labels.values()) == audit["num_held_blocks"]


@pytest.mark.parametrize("path", ["none/map", "pool/map?by=tenant", "pool/map?bye=lease"])
def test_a_map_that_there_is_none_of_is_refused(path: str) -> None:
    with make_api() as api:
        make_pool(api)
        reply = api.get(f"/v1/pools/{path}")
    missing = path.startswith("none")
    assert (reply.status_code, reply.json()["code"]) == (
        (404, "pool_not_found") if missing else (422, "invalid_request")
    )


def test_a_pool_that_is_deleted_while_its_map_is_read_is_not_found() -> None:
    async def delete_meanwhile() -> httpx.Response:
        app = create_app(Settings(volatile=True))
        transport = httpx.ASGITransport(app)
        async with (
            app.api.router.lifespan_context(app.api),
            httpx.AsyncClient(transport=transport, base_url="http://test") as api,
        ):
            await api.put("/v1/pools/pool", json={"num_blocks": 20 * SLICE_BLOCKS, "block_size": 4})
            reading = asyncio.create_task(api.get("/v1/pools/pool/map"))
            await asyncio.sleep(0)
            assert (await api.delete("/v1/pools/pool")).is_success
            assert not reading.done()
            return await reading

    reply = asyncio.run(delete_meanwhile())
    assert (reply.status_code, reply.json()["code"]) == (404, "pool_not_found")
