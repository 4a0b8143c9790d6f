"""Every error code is reached, has the status and the figures of the contract, and changes nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from access.token_files import add_token
from api.support import block_hashes, make_api, make_lease, make_pool
from blockyard.core.commands import SetQuota
from blockyard.core.errors import ERRORS, PoolElsewhere
from blockyard.core.ids import NO_TENANT, TenantId
from blockyard.core.quota import Quota
from blockyard.planning.errors import PLAN_ERRORS
from blockyard.server.media import render_error


def provoke_invalid_request(api: TestClient) -> Response:
    return api.put("/v1/pools/pool", json={"num_blocks": 10, "block_size": 4, "blok_size": 4})


def provoke_pool_not_found(api: TestClient) -> Response:
    return api.get("/v1/pools/nobody/stats")


def with_token(scope: str, path: str, **bearing: str) -> Response:
    """``path``, asked at a server whose file has a token of this scope."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.json"
        token = add_token(file, scope)
        with make_api(token_file=str(file)) as api:
            return api.delete(path, headers=bearing or {"Authorization": f"Bearer {token}"})


def provoke_unauthorized(_: TestClient) -> Response:
    return with_token("admin", "/v1/pools/pool", Authorization="Bearer byd_00_00")


def provoke_forbidden(_: TestClient) -> Response:
    return with_token("read", "/v1/pools/pool")


def provoke_sequence_not_found(api: TestClient) -> Response:
    return api.get(f"{make_pool(api)}/sequences/nobody")


def provoke_pool_exists(api: TestClient) -> Response:
    make_pool(api)
    return api.put("/v1/pools/pool", json={"num_blocks": 11, "block_size": 4})


def provoke_pool_in_use(api: TestClient) -> Response:
    pool = make_pool(api)
    lease = make_lease(api, pool)
    api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 1})
    return api.delete(pool)


def provoke_sequence_exists_elsewhere(api: TestClient) -> Response:
    pool = make_pool(api)
    ask = {"sequence_id": "s", "num_tokens": 4}
    api.post(f"{pool}/allocate", json={"lease_id": make_lease(api, pool), **ask})
    return api.post(f"{pool}/allocate", json={"lease_id": make_lease(api, pool), **ask})


def provoke_insufficient_blocks(api: TestClient) -> Response:
    pool = make_pool(api)
    return api.post(
        f"{pool}/allocate", json={"lease_id": make_lease(api, pool), "sequence_id": "s", "num_tokens": 400}
    )


def provoke_prefix_not_cached(api: TestClient) -> Response:
    pin = {"block_hashes": block_hashes(1, 2), "ttl_ms": 1_000, "hard": True}
    return api.post(f"{make_pool(api)}/pins", json=pin)


def provoke_pin_not_found(api: TestClient) -> Response:
    return api.post(f"{make_pool(api)}/pins/gone/renew")


def provoke_not_owner(api: TestClient) -> Response:
    pool = make_pool(api)
    owner, other = make_lease(api, pool), make_lease(api, pool)
    blocks = api.post(f"{pool}/blocks/allocate", json={"lease_id": owner, "num_blocks": 2}).json()[
        "block_ids"
    ]
    return api.post(f"{pool}/blocks/free", json={"lease_id": other, "block_ids": blocks})


def provoke_double_free(api: TestClient) -> Response:
    pool = make_pool(api)
    lease = make_lease(api, pool)
    blocks = api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 2}).json()[
        "block_ids"
    ]
    return api.post(f"{pool}/blocks/free", json={"lease_id": lease, "block_ids": [*blocks, blocks[0]]})


def provoke_stale_epoch(api: TestClient) -> Response:
    pool = make_pool(api)
    return api.post(
        f"{pool}/allocate",
        json={"lease_id": make_lease(api, pool), "epoch": 7, "sequence_id": "s", "num_tokens": 4},
    )


def provoke_lease_expired(api: TestClient) -> Response:
    return api.post(
        f"{make_pool(api)}/allocate", json={"lease_id": "gone", "sequence_id": "s", "num_tokens": 4}
    )


def provoke_body_too_large(api: TestClient) -> Response:
    return api.post("/v1/hash", content=b"x" * (MAX_BODY_BYTES + 1))


def provoke_limit_exceeded(api: TestClient) -> Response:
    return api.put("/v1/pools/pool", json={"num_blocks": 8_388_609, "block_size": 4})


def provoke_quota_exceeded(api: TestClient) -> Response:
    pool = make_pool(api)
    for tenant in (TenantId("another"), NO_TENANT):  # with one alone there is nobody to keep books for
        quota = SetQuota(holder=tenant, quota=Quota(max_blocks=3))
        api.app.pools.apply("pool", quota, 0)  # type: ignore[attr-defined]
    return api.post(f"{pool}/blocks/allocate", json={"lease_id": make_lease(api, pool), "num_blocks": 4})


def provoke_tenant_not_found(api: TestClient) -> Response:
    return api.get(f"{make_pool(api)}/tenants/nobody")


def provoke_overloaded(_: TestClient) -> Response:
    with make_api(max_requests_in_flight=0) as busy:
        return busy.get("/v1/pools")


def provoke_not_ready(api: TestClient) -> Response:
    api.app.readiness.end()  # type: ignore[attr-defined]
    return api.get("/v1/pools")


def provoke_plan_not_found(api: TestClient) -> Response:
    return api.get(f"{make_pool(api)}/plan")


def provoke_worker_not_found(api: TestClient) -> Response:
    return api.post(f"{make_pool(api)}/workers/nobody/heartbeat")


def provoke_worker_replaced(api: TestClient) -> Response:
    pool = make_pool(api)
    worker = {"rank": 0, "device": "cpu", "incarnation": "a"}
    api.post(f"{pool}/workers", json={"worker_id": "one", **worker})
    return api.post(f"{pool}/workers", json={"worker_id": "another", **worker})


FULL = {"kind": "full_attention", "block_size": 16, "num_kv_heads": 1, "head_size": 64, "dtype": "float16"}
MLA = {"kind": "mla_attention", "block_size": 64, "num_kv_heads": 1, "head_size": 576, "dtype": "bfloat16"}
INDEXER = {**MLA, "head_size": 128, "cache_role": "indexer"}
COMPRESSED = {**MLA, "head_size": 128, "tokens_per_state": 4}
STATE = {"kind": "mamba", "block_size": 16, "shapes": [[64]], "dtypes": ["float32"]}
SPARSE = {"layers.0.attn": MLA, "layers.0.indexer": INDEXER}


def ask_plan(
    *layers: dict[str, Any], memory: int = 10**9, **options: Any
) -> Callable[[TestClient], Response]:
    """Asks for a plan of ``layers`` on a rank each, of requests of 64 tokens."""
    workers = [{"available_memory_bytes": memory, "layers": each} for each in layers]
    return lambda api: api.post("/v1/plans", json={"workers": workers, "max_model_len": 64, **options})


def ask_sparse_plan(**hisparse: int) -> Callable[[TestClient], Response]:
    """Asks for a plan with sparse pages on the host."""
    return ask_plan(SPARSE, layout="BLHNC", hisparse={"host_pool_bytes": 10**9, "index_topk": 64, **hisparse})


MAX_BODY_BYTES = 4096


def provoke_no_events(api: TestClient) -> Response:
    return api.get(f"{make_pool(api)}/events")


CASES: dict[str, tuple[Callable[[TestClient], Response], int, dict[str, Any]]] = {
    "invalid_request": (
        provoke_invalid_request,
        422,
        {"errors": [{"field": "blok_size", "message": "is no field of this request"}]},
    ),
    "pool_not_found": (provoke_pool_not_found, 404, {}),
    "sequence_not_found": (provoke_sequence_not_found, 404, {}),
    "plan_not_found": (provoke_plan_not_found, 404, {}),
    "worker_not_found": (provoke_worker_not_found, 404, {}),
    "worker_replaced": (provoke_worker_replaced, 409, {}),
    "no_events": (provoke_no_events, 404, {}),
    "no_cluster": (lambda api: api.get("/v1/cluster"), 404, {}),
    "pool_exists": (provoke_pool_exists, 409, {}),
    "pool_in_use": (provoke_pool_in_use, 409, {}),
    "sequence_exists_elsewhere": (provoke_sequence_exists_elsewhere, 409, {}),
    "insufficient_blocks": (
        provoke_insufficient_blocks,
        409,
        {"num_required_blocks": 100, "num_free_blocks": 9, "num_usable_blocks": 9},
    ),
    "quota_exceeded": (
        provoke_quota_exceeded,
        429,
        {"num_required_blocks": 4, "num_held_blocks": 0, "num_quota_blocks": 3},
    ),
    "tenant_not_found": (provoke_tenant_not_found, 404, {}),
    "not_owner": (provoke_not_owner, 409, {"block_ids": [1, 2]}),
    "double_free": (provoke_double_free, 409, {"block_ids": [1]}),
    "stale_epoch": (provoke_stale_epoch, 409, {"epoch": 1}),
    "lease_expired": (provoke_lease_expired, 410, {}),
    "unauthorized": (provoke_unauthorized, 401, {}),
    "forbidden": (provoke_forbidden, 403, {}),
    "prefix_not_cached": (provoke_prefix_not_cached, 409, {"num_tokens": 8, "num_cached_tokens": 0}),
    "pin_not_found": (provoke_pin_not_found, 404, {}),
    "limit_exceeded": (provoke_limit_exceeded, 429, {"limit": "max_pool_blocks", "max": 8_388_608}),
    "body_too_large": (provoke_body_too_large, 413, {"max_body_bytes": MAX_BODY_BYTES}),
    "overloaded": (provoke_overloaded, 503, {"retry_after_ms": 100}),
    "not_ready": (provoke_not_ready, 503, {"retry_after_ms": 100}),
    "no_memory": (
        ask_plan({"l": FULL}, memory=4096),
        422,
        {"rank": 0, "available_bytes": 4096, "bytes_per_block": 4096},
    ),
    "insufficient_memory": (
        ask_plan({"l": FULL}, memory=4 * 4096),
        422,
        {"rank": 0, "needed_bytes": 16384, "available_bytes": 12288, "estimated_max_model_len": 48},
    ),
    "conflicting_layer_specs": (
        ask_plan({"l": FULL}, {"l": {**FULL, "head_size": 32}}),
        422,
        {"layer": "l"},
    ),
    "incompatible_page_sizes": (
        ask_plan({"a": MLA, "s": {**STATE, "shapes": [[20_000]]}}),
        422,
        {"page_size_bytes": {"a": 73728, "s": 80000}},
    ),
    "cannot_unify_hybrid": (
        ask_plan({"a": FULL, "s": STATE}, hybrid_groups=False),
        422,
        {"kinds": ["full_attention", "mamba"]},
    ),
    "layout_cannot_express": (
        ask_plan({"a": MLA, "i": INDEXER}, layout="LHBNC"),
        422,
        {"layout": "LHBNC", "possible_layouts": ["BLHNC", "BLNHC"]},
    ),
    "invalid_prefix_match_unit": (
        ask_plan({"l": FULL}, prefix_match_unit=8),
        422,
        {"prefix_match_unit": 8, "block_sizes": [16]},
    ),
    "state_page_too_large": (
        ask_plan({"0.s": {**STATE, "shapes": [[20_000]]}, "1.a": MLA, "1.i": COMPRESSED}),
        422,
        {"state_bytes": 80000, "page_size_bytes": 73728},
    ),
    "pipeline_stage_without_mla": (
        ask_plan({"0.s": STATE}, {"1.a": MLA, "1.i": COMPRESSED}, parallel={"pipeline": 2}),
        422,
        {"stage": 0},
    ),
    "host_pool_too_small": (
        ask_sparse_plan(host_pool_bytes=2 * 73728),
        422,
        {"num_host_blocks": 2, "num_required_blocks": 3},
    ),
    "device_buffer_too_small": (
        ask_sparse_plan(device_buffer_size=63),
        422,
        {"device_buffer_size": 63, "needed_tokens": 64},
    ),
    "unsupported_model": (
        lambda api: api.post(
            "/v1/plans",
            json={"hf_config": {"model_type": "weird"}, "workers": [{"available_memory_bytes": 10**9}]},
        ),
        422,
        {"model_type": "weird"},
    ),
}


OVER_SOCKETS = {"head_too_large", "request_timeout"}
"""See `api.test_connections`."""

IN_A_CLUSTER = {"pool_elsewhere"}
"""See `cluster`; how it is rendered, below."""


def test_every_error_class_has_a_case() -> None:
    assert {error.code for error in (*ERRORS, *PLAN_ERRORS)} == {*CASES, *OVER_SOCKETS, *IN_A_CLUSTER}


@pytest.mark.parametrize("code", CASES)
def test_an_error_is_a_problem_document_with_its_code_and_figures(code: str) -> None:
    provoke, status, figures = CASES[code]
    with make_api(max_body_bytes=MAX_BODY_BYTES) as api:
        reply = provoke(api)
    problem = reply.json()
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["code"] == code
    assert problem["status"] == status
    assert problem["type"] == f"urn:blockyard:error:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert {name: problem[name] for name in figures} == figures


@pytest.mark.parametrize("code", ["overloaded", "not_ready"])
def test_a_503_says_when_to_come_back(code: str) -> None:
    with make_api() as api:
        assert CASES[code][0](api).headers["retry-after"] == "1"


def test_health_answers_while_the_server_refuses_work() -> None:
    with make_api(max_requests_in_flight=0) as api:
        assert api.get("/healthz").status_code == 200
        assert api.get("/readyz").status_code == 200
        api.app.readiness.end()  # type: ignore[attr-defined]
        assert api.get("/healthz").status_code == 200
        reply = api.get("/readyz")
    assert (reply.status_code, reply.json()["code"]) == (503, "not_ready")


def test_an_unknown_route_is_a_problem_document() -> None:
    with make_api() as api:
        reply = api.get("/v1/nowhere")
    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
    assert reply.headers["content-type"] == "application/problem+json"


def test_a_wrong_method_is_a_problem_document() -> None:
    with make_api() as api:
        reply = api.get(f"{make_pool(api)}/allocate")
    assert (reply.status_code, reply.json()["code"]) == (405, "method_not_allowed")


def test_our_own_mistake_is_answered_500() -> None:
    with make_api() as api:
        pool = make_pool(api)
        next(iter(api.app.pools))[1].stores = None  # type: ignore[attr-defined]
        reply = api.get(f"{pool}/stats")
    assert (reply.status_code, reply.json()["code"]) == (500, "internal_error")


def test_a_timeout_of_our_own_is_not_laid_at_the_callers_door() -> None:
    def late(*_: object) -> None:
        raise TimeoutError

    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        next(iter(api.app.pools))[1].apply = late  # type: ignore[attr-defined]
        reply = api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": []})
        del next(iter(api.app.pools))[1].apply  # type: ignore[attr-defined]
    assert (reply.status_code, reply.json()["code"]) == (500, "internal_error")


def refused_bodies() -> list[tuple[str, str, Any]]:
    """Requests that can never succeed: route below the pool, why, body."""
    allocate = {"sequence_id": "s", "num_tokens": 8}
    return [
        ("allocate", "no fields", {}),
        ("allocate", "not an object", [1]),
        ("allocate", "unknown field", {**allocate, "num_token": 8}),
        ("allocate", "a number in quotes", {**allocate, "num_tokens": "8"}),
        ("allocate", "a fraction", {**allocate, "num_tokens": 8.5}),
        ("allocate", "a boolean for a count", {**allocate, "num_tokens": True}),
        ("allocate", "zero tokens", {**allocate, "num_tokens": 0}),
        ("allocate", "negative tokens", {**allocate, "num_tokens": -8}),
        ("allocate", "an absurd number", {**allocate, "num_tokens": 10**30}),
        ("allocate", "negative lookahead", {**allocate, "num_lookahead_tokens": -1}),
        ("allocate", "zero new tokens", {**allocate, "max_new_tokens": 0}),
        ("allocate", "an empty id", {**allocate, "sequence_id": ""}),
        ("allocate", "a hash that is not hex", {**allocate, "block_hashes": ["xyz"]}),
        ("allocate", "half a byte of hash", {**allocate, "block_hashes": ["abc"]}),
        ("allocate", "an empty hash", {**allocate, "block_hashes": [""]}),
        ("allocate", "a hash of 65 bytes", {**allocate, "block_hashes": ["00" * 65]}),
        ("allocate", "hashes and tokens", {**allocate, "block_hashes": block_hashes(1), "token_ids": [1]}),
        ("allocate", "hashes and a salt", {**allocate, "block_hashes": block_hashes(1), "cache_salt": "a"}),
        ("allocate", "a negative token", {**allocate, "token_ids": [-1]}),
        (
            "allocate",
            "an infinite embedding",
            {**allocate, "token_ids": [1], "prompt_embeds_float32": [[1e39]]},
        ),
        ("allocate", "more hashes than tokens", {**allocate, "block_hashes": block_hashes(1, 2, 3)}),
        ("allocate", "more token ids than tokens", {**allocate, "token_ids": list(range(9))}),
        ("allocate", "computed tokens of a new sequence", {**allocate, "num_computed_tokens": 4}),
        ("commit", "an unknown field", {"sequence_id": "s", "num_computed_tokens": 1, "x": 1}),
        ("free", "not a list", {"sequence_ids": "s"}),
        ("blocks/allocate", "no blocks", {"num_blocks": 0}),
        ("blocks/allocate", "negative blocks", {"num_blocks": -1}),
        ("blocks/free", "a negative block", {"block_ids": [-1]}),
        ("step", "columns of two lengths", {"extend": {"sequences": [], "num_tokens": [1]}}),
        ("step", "the same id twice", {"admit": [allocate, allocate]}),
        ("step", "a negative step", {"step_id": -1}),
        ("lookup", "no tokens", {"num_tokens": 0}),
    ]


@pytest.mark.parametrize(("route", "why", "body"), refused_bodies())
def test_a_bad_body_is_refused_by_its_field_and_changes_nothing(route: str, why: str, body: Any) -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        if isinstance(body, dict) and route != "lookup":
            body = {"lease_id": lease, **body}
        before = api.get(f"{pool}/stats").json()
        reply = api.post(f"{pool}/{route}", json=body)
        assert reply.status_code == 422, why
        assert reply.json()["code"] == "invalid_request"
        assert all(error["field"] and error["message"] for error in reply.json()["errors"])
        assert api.get(f"{pool}/stats").json() == before
        assert api.get(f"{pool}/audit").json()["ok"]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"lease_id": "a"'])
def test_a_body_that_is_not_json_is_refused(raw: bytes) -> None:
    with make_api() as api:
        reply = api.post(f"{make_pool(api)}/allocate", content=raw)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000])
def test_a_body_that_is_not_msgpack_is_refused(raw: bytes) -> None:
    with make_api() as api:
        reply = api.post(
            f"{make_pool(api)}/allocate", content=raw, headers={"content-type": "application/msgpack"}
        )
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")


def test_msgpack_is_refused_where_the_contract_has_none() -> None:
    with make_api() as api:
        reply = api.post(
            f"{make_pool(api)}/leases", content=b"\x80", headers={"content-type": "application/msgpack"}
        )
    assert reply.json()["errors"][0]["field"] == "Content-Type"


@pytest.mark.parametrize(
    "config",
    [
        {"num_blocks": 0, "block_size": 4},
        {"num_blocks": -5, "block_size": 4},
        {"num_blocks": 10**30, "block_size": 4},
        {"num_blocks": 2**40, "block_size": 4},
        {"num_blocks": 10, "block_size": 0},
        {"num_blocks": 10},
        {"num_blocks": 10, "block_size": 4, "groups": [{"kind": "full_attention", "block_size": 4}]},
        {"num_blocks": 10, "groups": []},
        {"num_blocks": 10, "groups": [{"kind": "half_attention", "block_size": 4}]},
        {"num_blocks": 10, "groups": [{"kind": "sliding_window", "block_size": 4}]},
        {"num_blocks": 10, "groups": [{"kind": "full_attention", "block_size": 4, "sliding_window": 4}]},
        {"num_blocks": 10, "groups": [{"kind": "chunked_local_attention", "block_size": 4}]},
        {"num_blocks": 10, "block_size": 4, "scheduler_block_size": 6},
        {"num_blocks": 10, "block_size": 4, "hash_block_size": 3},
        {"num_blocks": 10, "block_size": 4, "watermark_blocks": 10},
        {"num_blocks": 10, "block_size": 4, "publish": "sometimes"},
        {"num_blocks": 10, "block_size": 4, "eviction": "random"},
        {"num_blocks": 10, "block_size": 4, "hash_algorithm": "md5"},
        {"num_blocks": 10, "block_size": 4, "hash_algorithm": "blake2b", "extra_key_form": "bare"},
    ],
)
def test_a_pool_of_impossible_sizes_is_not_made(config: dict[str, Any]) -> None:
    with make_api() as api:
        reply = api.put("/v1/pools/pool", json=config)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")
        assert api.get("/v1/pools").json() == {"pools": []}


@pytest.mark.parametrize("name", ["-", "a b", "a" * 129, "ü", "..%2f"])
def test_a_pool_of_an_odd_name_is_not_made(name: str) -> None:
    with make_api() as api:
        assert api.put(f"/v1/pools/{name}", json={"num_blocks": 10, "block_size": 4}).status_code in (
            404,
            422,
        )


def test_one_pool_too_many_is_not_made() -> None:
    with make_api(max_pools=1) as api:
        make_pool(api, "first")
        reply = api.put("/v1/pools/second", json={"num_blocks": 10, "block_size": 4})
        assert [pool["pool"] for pool in api.get("/v1/pools").json()["pools"]] == ["first"]
    assert (reply.status_code, reply.json()["code"]) == (429, "limit_exceeded")


def test_every_faulty_field_is_named() -> None:
    with make_api() as api:
        reply = api.post(f"{make_pool(api)}/allocate", json={"lease_id": "", "sequence_id": 5, "x": 1})
    fields = [error["field"] for error in reply.json()["errors"]]
    assert sorted(fields) == ["lease_id", "num_tokens", "sequence_id", "x"]


def test_a_fault_in_a_step_says_which_entry_has_it() -> None:
    with make_api() as api:
        pool = make_pool(api, max_model_len=8)
        admit = [{"sequence_id": "a", "num_tokens": 8}, {"sequence_id": "b", "num_tokens": 9}]
        reply = api.post(f"{pool}/step", json={"lease_id": make_lease(api, pool), "admit": admit})
    assert reply.json()["errors"][0]["field"] == "admit.1.num_tokens"


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", "?forse=true"), ("GET", "/stats?verbose=1"), ("POST", "/reset_prefix_cache?now=1")],
)
def test_an_unknown_query_parameter_is_refused(method: str, path: str) -> None:
    with make_api() as api:
        reply = api.request(method, make_pool(api) + path)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")
        assert api.get("/v1/pools/pool").status_code == 200


@pytest.mark.parametrize("raw", [b"\xff\xfe{}", b'{"num_blocks": ' + b"9" * 5000 + b"}", b"{"])
def test_a_pool_from_what_is_not_json_is_refused(raw: bytes) -> None:
    with make_api() as api:
        reply = api.put("/v1/pools/pool", content=raw, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")


def test_a_pool_elsewhere_is_a_redirect_to_the_same_call_at_its_owner() -> None:
    url = "http://10.0.0.2:8484/v1/pools/llama/stats?fresh=true"
    answer = render_error(PoolElsewhere.of("llama", node="b", url=url, ownership=3))
    assert answer.status == 307
    assert answer.headers == {"Location": url}
    figures = {"pool": "llama", "node": "b", "url": url, "ownership": 3}
    assert json.loads(answer.body).items() >= {"code": "pool_elsewhere", **figures}.items()
