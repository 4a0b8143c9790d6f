"""Plans over HTTP: asked for, and made into pools."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.support import make_api, make_lease

CASES = json.loads((Path(__file__).parents[1] / "data" / "planning.json").read_text())
GIB = 2**30

FULL = {"kind": "full_attention", "block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}
WINDOW = {**FULL, "kind": "sliding_window", "sliding_window": 1024}
STATE = {"kind": "mamba", "block_size": 16, "shapes": [[64]], "dtypes": ["float32"]}


def make_request(layers: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """A plan's request for one rank of 1 GiB: two full-attention layers unless ``layers`` says otherwise."""
    layers = {"l0": FULL, "l1": FULL} if layers is None else layers
    worker = {"available_memory_bytes": GIB, "layers": layers}
    return {"workers": [worker], "max_model_len": 4096, **options}


def test_a_plan_says_what_every_operator_asks() -> None:
    with make_api() as api:
        plan = api.post("/v1/plans", json=make_request()).json()
    page = 16 * 8 * (128 + 128) * 2
    assert plan["num_blocks"] == GIB // (2 * page) == 8192
    assert plan["capacity"] == {"num_tokens": 8192 * 16, "max_concurrency": 32.0}
    assert plan["longest_model_len"] == 8191 * 16
    (worker,) = plan["workers"]
    (group,) = worker["groups"]
    assert group["layer_names"] == ["l0", "l1"]
    assert group["max_blocks_per_request"] == 256
    assert worker["tensors"] == [
        {
            "size": GIB,
            "layers": ["l0", "l1"],
            "layer_stride": 8192 * page,
            "block_stride": page,
            "offset": 0,
            "host_resident": False,
            "is_elsewhere": False,
        }
    ]


def test_slots_say_which_layers_share_a_page() -> None:
    with make_api() as api:
        request = make_request({"f": FULL, "w": WINDOW}, tensor_form="slots")
        plan = api.post("/v1/plans", json=request).json()
    page = 65536
    assert plan["layout"] == "BLNHC"
    assert plan["workers"][0]["tensors"] == [
        {"size": GIB, "shared_by": ["f", "w"], "offset": 0, "block_stride": page}
    ]


def test_memory_may_be_given_as_total_utilization_and_weights() -> None:
    request = make_request()
    del request["workers"][0]["available_memory_bytes"]
    request["workers"][0] |= {
        "total_memory_bytes": 10 * GIB,
        "memory_utilization": 0.5,
        "weights_bytes": 4 * GIB,
    }
    with make_api() as api:
        assert api.post("/v1/plans", json=request).json()["workers"][0]["available_memory_bytes"] == GIB


def test_a_fault_in_a_layer_is_named_with_its_place() -> None:
    with make_api() as api:
        reply = api.post("/v1/plans", json=make_request({"a": FULL, "b": {**FULL, "page_size_padded": 8}}))
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["field"] == "workers.0.layers.b.page_size_padded"


def test_a_pool_takes_blocks_and_groups_from_its_plan() -> None:
    request = make_request({"f": FULL, "w": WINDOW}, max_in_flight_tokens=2048)
    with make_api() as api:
        reply = api.put("/v1/pools/planned", json={"plan": request, "publish": "on_allocate"})
        assert reply.status_code == 201, reply.text
        pool = reply.json()
        assert pool["num_blocks"] == 16384
        assert pool["groups"] == [
            {"kind": "full_attention", "block_size": 16},
            {"kind": "sliding_window", "block_size": 16, "sliding_window": 1024},
        ]
        assert (pool["max_model_len"], pool["max_in_flight_tokens"]) == (4096, 2048)
        assert (pool["scheduler_block_size"], pool["hash_block_size"]) == (16, 16)
        assert api.get("/v1/pools/planned/plan").json() == api.post("/v1/plans", json=request).json()


def test_a_pool_of_the_same_plan_is_the_same_pool() -> None:
    request = make_request()
    with make_api() as api:
        assert api.put("/v1/pools/p", json={"plan": request}).status_code == 201
        assert api.put("/v1/pools/p", json={"plan": request}).status_code == 200
        other = {"plan": {**request, "layout": "LBHNC"}}
        assert api.put("/v1/pools/p", json=other).json()["code"] == "pool_exists"
        same_sizes = {"num_blocks": 8192, "block_size": 16, "max_model_len": 4096}
        assert api.put("/v1/pools/p", json=same_sizes).json()["code"] == "pool_exists"


def test_a_deleted_pool_leaves_no_plan_behind() -> None:
    with make_api() as api:
        api.put("/v1/pools/p", json={"plan": make_request()})
        api.delete("/v1/pools/p")
        assert api.put("/v1/pools/p", json={"num_blocks": 8, "block_size": 16}).status_code == 201
        assert api.get("/v1/pools/p/plan").json()["code"] == "plan_not_found"


def test_decode_context_ranks_share_a_blocks_tokens() -> None:
    request = make_request(parallel={"tensor": 4, "decode_context": 4})
    with make_api() as api:
        pool = api.put("/v1/pools/p", json={"plan": request}).json()
    assert pool["groups"] == [{"kind": "full_attention", "block_size": 64}]


MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]], bool]] = {
    "a model that keeps nothing": ({}, {}, [], True),
    "the running state alone": (
        {"f": FULL, "s": STATE},
        {},
        [{"kind": "full_attention"}, {"kind": "mamba", "mamba_cache_mode": "none"}],
        False,
    ),
    "states at the ends of blocks": (
        {"f": FULL, "s": {**STATE, "mamba_cache_mode": "align", "num_speculative_blocks": 2}},
        {"mamba_cache_mode": "align"},
        [
            {"kind": "full_attention"},
            {"kind": "mamba", "mamba_cache_mode": "align", "num_speculative_blocks": 2},
        ],
        True,
    ),
    "tokens retained behind a window": (
        {"f": FULL, "w": {**WINDOW, "extra_retained_tokens": 7}},
        {},
        [
            {"kind": "full_attention"},
            {"kind": "sliding_window", "sliding_window": 1024, "extra_retained_tokens": 7},
        ],
        True,
    ),
}
"""Layers, options of their plan, the groups of its pool, and whether that caches prefixes."""


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_of_further_kinds_is_a_pool(name: str) -> None:
    layers, options, groups, is_cached = MODELS[name]
    with make_api() as api:
        reply = api.put("/v1/pools/p", json={"plan": make_request(layers, **options)})
        assert reply.status_code == 201, reply.text
        pool = reply.json()
        assert [{k: v for k, v in group.items() if k != "block_size"} for group in pool["groups"]] == groups
        assert pool["enable_prefix_caching"] is is_cached
        lease = make_lease(api, "/v1/pools/p")
        asked = {"lease_id": lease, "sequence_id": "s", "num_tokens": 40}
        given = api.post("/v1/pools/p/allocate", json=asked).json()
        assert len(given["block_ids"]) == len(groups)
        assert api.get("/v1/pools/p/audit").json()["ok"]


@pytest.mark.parametrize("name", ["draft-marker", "hisparse-4", "qwen3-next-80b-gdn-align", "6-5"])
def test_a_recorded_plan_is_a_pool(name: str) -> None:
    (request,) = [case["request"] for case in CASES if case["name"] == name]
    with make_api() as api:
        assert api.put("/v1/pools/p", json={"plan": request}).status_code == 201
        pool, plan = api.get("/v1/pools/p").json(), api.get("/v1/pools/p/plan").json()
        planned = plan["workers"][0]["groups"]
        assert [group.get("is_draft", False) for group in pool["groups"]] == [g["is_draft"] for g in planned]
        assert [group.get("is_host_resident", False) for group in pool["groups"]] == [
            group["host_resident"] for group in planned
        ]


def test_a_plan_with_pages_on_the_host_has_blocks_there() -> None:
    (request,) = [case["request"] for case in CASES if case["name"] == "hisparse-4"]
    with make_api() as api:
        pool = api.put("/v1/pools/p", json={"plan": request}).json()
        stats = api.get("/v1/pools/p/stats").json()
    assert stats["num_host_blocks"] == pool["num_host_blocks"] > 1
    assert stats["num_free_host_blocks"] == pool["num_host_blocks"] - 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"plan": make_request(), "num_blocks": 8}, "num_blocks"),
        ({"plan": make_request(), "block_size": 16}, "plan"),
        ({"plan": make_request(), "hash_block_size": 16}, "hash_block_size"),
        ({"plan": make_request(), "scheduler_block_size": 16}, "scheduler_block_size"),
        ({"plan": make_request(), "max_model_len": 4097}, "max_model_len"),
        ({"plan": make_request(), "num_host_blocks": 8}, "num_host_blocks"),
        (
            {"plan": make_request({"f": FULL, "s": STATE}), "enable_prefix_caching": True},
            "enable_prefix_caching",
        ),
        ({"plan": make_request({"s": {**STATE, "mamba_cache_mode": "all"}})}, "plan"),
        ({"plan": {**make_request(), "max_model_len": None}}, "plan.max_model_len"),
        ({"plan": {**make_request(), "workers": []}}, "plan.workers"),
        ({"block_size": 16}, "num_blocks"),
        ({"num_blocks": 16}, "groups"),
    ],
)
def test_what_does_not_go_with_a_plan_is_named(body: dict[str, Any], field: str) -> None:
    with make_api() as api:
        reply = api.put("/v1/pools/p", json=body)
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["field"] == field
        assert api.get("/v1/pools").json() == {"pools": []}


def test_a_pool_is_refused_with_the_code_of_its_plan() -> None:
    with make_api() as api:
        reply = api.put("/v1/pools/p", json={"plan": make_request(max_model_len=2**20)})
    assert reply.json()["code"] == "insufficient_memory"


def test_every_recorded_plan_is_answered_over_http() -> None:
    with make_api() as api:
        for case in CASES:
            reply = api.post("/v1/plans", json=case["request"])
            assert reply.status_code == (422 if "error" in case else 200), case["name"]
            if "error" in case:
                assert reply.json()["code"] == case["error"]["code"], case["name"]
            else:
                assert reply.json()["num_blocks"] == case["expected"]["num_blocks"], case["name"]
