"""Limits on what is asked for: each refused with its name and value, and nothing done."""

from typing import Any

import ormsgpack
import pytest

from api.support import block_hashes, make_api, make_lease, make_pool

MOST = 100
TOKENS = list(range(60))
HASHES = block_hashes(*range(60))


def refused(limit: str, most: int) -> dict[str, Any]:
    return {"code": "limit_exceeded", "status": 429, "limit": limit, "max": most}


def figures(problem: dict[str, Any]) -> dict[str, Any]:
    return {name: problem[name] for name in ("code", "status", "limit", "max")}


def test_one_pool_too_many_is_told_the_limit_and_fits_once_another_is_gone() -> None:
    with make_api(max_pools=1) as api:
        first = make_pool(api, "first")
        reply = api.put("/v1/pools/second", json={"num_blocks": 10, "block_size": 4})
        assert figures(reply.json()) == refused("max_pools", 1)
        api.delete(first)
        make_pool(api, "second")


HOST = [
    {"kind": "resident", "block_size": 4},
    {"kind": "mla_attention", "block_size": 4, "is_host_resident": True},
]


@pytest.mark.parametrize(
    ("most", "config"),
    [
        (10, {"num_blocks": 11, "block_size": 4}),
        (10, {"num_blocks": 10, "num_host_blocks": 11, "groups": HOST}),
    ],
)
def test_a_pool_of_too_many_blocks_is_not_made(most: int, config: dict[str, Any]) -> None:
    with make_api(max_pool_blocks=most) as api:
        reply = api.put("/v1/pools/pool", json=config)
        assert figures(reply.json()) == refused("max_pool_blocks", most)
        assert api.get("/v1/pools").json() == {"pools": []}


HELD = {"sequence_id": "held", "num_tokens": 4}
MORE = {"sequence_id": "more", "num_tokens": 400}


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("allocate", {**MORE, "token_ids": [*TOKENS, *TOKENS]}),
        ("allocate", {**MORE, "block_hashes": HASHES, "event_token_ids": TOKENS}),
        ("allocate", {**MORE, "token_ids": TOKENS, "prompt_embeds_float32": [[0.5]] * 60}),
        ("commit", {"sequence_id": "held", "num_computed_tokens": 4, "token_ids": TOKENS * 2}),
        ("step", {"admit": [{**MORE, "token_ids": TOKENS}, {**MORE, "block_hashes": HASHES}]}),
        (
            "step",
            {
                "extend": {
                    "sequences": [1],
                    "num_tokens": [8],
                    "block_hashes": {"1": HASHES},
                    "event_token_ids": {"1": TOKENS},
                }
            },
        ),
        (
            "step",
            {
                "extend": {"sequences": [1], "num_tokens": [8], "token_ids": {"1": TOKENS}},
                "admit": [{**MORE, "token_ids": TOKENS}],
            },
        ),
    ],
)
def test_hashes_and_tokens_of_one_call_are_bounded_in_all_its_lists_together(
    call: str, body: dict[str, Any]
) -> None:
    with make_api(max_hashes_per_call=MOST) as api:
        pool = make_pool(api, num_blocks=200)
        lease = make_lease(api, pool)
        assert api.post(f"{pool}/allocate", json={"lease_id": lease, **HELD}).status_code == 200
        before = api.get(f"{pool}/stats").json()
        reply = api.post(f"{pool}/{call}", json={"lease_id": lease, **body})
        assert figures(reply.json()) == refused("max_hashes_per_call", MOST)
        assert api.get(f"{pool}/stats").json() == before


@pytest.mark.parametrize("num_tokens", [MOST, MOST + 1])
def test_as_many_hashes_as_allowed_are_taken_and_one_more_is_not(num_tokens: int) -> None:
    with make_api(max_hashes_per_call=MOST) as api:
        pool = make_pool(api)
        body = {"num_tokens": 500, "token_ids": [1_000_000] * num_tokens}
        replies = [
            api.post(f"{pool}/lookup", json=body),
            api.post(
                f"{pool}/lookup",
                content=ormsgpack.packb(body),
                headers={"content-type": "application/msgpack", "accept": "application/json"},
            ),
            api.post(
                "/v1/hash", json={"algorithm": "blake2b", "block_size": 4, "token_ids": body["token_ids"]}
            ),
        ]
    assert {reply.status_code for reply in replies} == {200 if num_tokens == MOST else 429}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/pools/pool/lookup", {"num_tokens": 5}),
        ("/v1/hash", {"algorithm": "blake2b", "block_size": 4}),
    ],
)
def test_a_list_beyond_any_setting_exceeds_the_limit_as_well(path: str, body: dict[str, Any]) -> None:
    with make_api() as api:
        make_pool(api)
        reply = api.post(path, json={**body, "token_ids": [0] * (2**20 + 1)})
    assert figures(reply.json()) == refused("max_hashes_per_call", 2**20)


def test_another_list_that_is_too_long_is_not_valid() -> None:
    features = [{"offset": 0, "length": 1, "identifier": "x"}] * 16_385
    with make_api() as api:
        reply = api.post(f"{make_pool(api)}/lookup", json={"num_tokens": 5, "mm_features": features})
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")


def allocate_blocks(api: Any, pool: str, lease: str, key: str) -> Any:
    return api.post(
        f"{pool}/blocks/allocate",
        json={"lease_id": lease, "num_blocks": 1},
        headers={"idempotency-key": key},
    ).json()


def test_a_lease_remembers_as_many_keys_as_its_pool_says() -> None:
    with make_api() as api:
        pool = make_pool(api, max_replies=2)
        assert api.get(pool).json()["max_replies"] == 2
        lease = make_lease(api, pool)
        first, second, third = (allocate_blocks(api, pool, lease, key) for key in "abc")
        assert allocate_blocks(api, pool, lease, "b") == second
        assert allocate_blocks(api, pool, lease, "c") == third
        assert allocate_blocks(api, pool, lease, "a")["block_ids"] != first["block_ids"]


def test_a_pool_remembers_four_times_as_many_keys_of_calls_without_a_lease() -> None:
    def open_lease(key: str) -> str:
        reply = api.post(
            f"{pool}/leases", json={"holder": "me", "ttl_ms": 60_000}, headers={"idempotency-key": key}
        )
        return str(reply.json()["lease_id"])

    with make_api() as api:
        pool = make_pool(api, max_replies=1)
        first, *others = (open_lease(key) for key in "abcde")
        assert [open_lease(key) for key in "bcde"] == others
        assert open_lease("a") != first


@pytest.mark.parametrize("max_replies", [0, 65_537])
def test_a_pool_that_would_remember_nothing_or_too_much_is_not_made(max_replies: int) -> None:
    with make_api() as api:
        reply = api.put(
            "/v1/pools/pool", json={"num_blocks": 10, "block_size": 4, "max_replies": max_replies}
        )
    assert reply.json()["errors"][0]["field"] == "max_replies"
