"""Workers: who holds a pool's tensors, what they look like, and what ends with a worker's memory."""

import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.support import block_hashes, make_api, make_lease, make_pool
from planning.recorded_plans import PLANS, VIEWS

FULL = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float32"}
WINDOW = {**FULL, "kind": "sliding_window", "sliding_window": 8}


def make_planned_pool(api: TestClient, num_ranks: int = 1, **config: Any) -> str:
    """A pool of 16 blocks of a full and a windowed layer, on each of ``num_ranks``."""
    rank = {"available_memory_bytes": 2**20, "layers": {"full": FULL, "window": WINDOW}}
    plan = {"workers": [rank] * num_ranks, "max_model_len": 16, "num_blocks_override": 16}
    reply = api.put("/v1/pools/planned", json={"plan": plan, **config})
    assert reply.status_code == 201, reply.text
    return "/v1/pools/planned"


def register(api: TestClient, pool: str, incarnation: str | int = "a", **worker: Any) -> dict[str, Any]:
    """A worker registers; what it is told."""
    body = {"worker_id": "w", "rank": 0, "device": "cuda:0", "incarnation": incarnation, **worker}
    reply = api.post(f"{pool}/workers", json=body)
    assert reply.status_code == 200, reply.text
    told: dict[str, Any] = reply.json()
    return told


def cache_prefix(api: TestClient, pool: str, lease: str) -> None:
    """The first eight tokens of a prompt are computed, and can be hit."""
    hashes = block_hashes(1, 2)
    ask = {"lease_id": lease, "sequence_id": "s", "num_tokens": 9, "block_hashes": hashes}
    assert api.post(f"{pool}/allocate", json=ask).status_code == 200
    commit = {"lease_id": lease, "sequence_id": "s", "num_computed_tokens": 8}
    assert api.post(f"{pool}/commit", json=commit).status_code == 200


def num_hit_tokens(api: TestClient, pool: str) -> int:
    ask = {"num_tokens": 9, "block_hashes": block_hashes(1, 2)}
    return int(api.post(f"{pool}/lookup", json=ask).json()["num_cached_tokens"])


def test_a_worker_is_told_what_to_allocate_and_how_often_to_call() -> None:
    with make_api() as api:
        pool = make_planned_pool(api, worker_timeout_ms=5_000)
        told = register(api, pool)
        plan = api.get(f"{pool}/plan").json()
    assert (told["epoch"], told["heartbeat_ms"], told["layout"]) == (1, 1_000, "LBNHC")
    assert told["tensors"] == plan["workers"][0]["tensors"]
    assert told["groups"] == plan["workers"][0]["groups"]
    memory = told["memory"]
    page = 2 * 4 * 2 * 8 * 4  # heads, tokens, key and value, elements, bytes
    assert (memory["num_blocks"], memory["device_bytes"], memory["host_bytes"]) == (16, 16 * page, 0)
    assert memory["groups"] == [
        {"kind": "full_attention", "block_size": 4, "host_resident": False},
        {"kind": "sliding_window", "block_size": 4, "host_resident": False},
    ]
    assert memory["layers"]["window"] == {
        "kind": "sliding_window",
        "group": 1,
        "dtype": "float32",
        "host_resident": False,
        "offset_bytes": 0,
        "shape": [16, 2, 4, 64],
        "strides_bytes": [page, 64, 128, 1],
        "page_size_bytes": page,
        "parts": [
            {"name": "key", "dtype": "float32", "shape": [8], "offset_bytes": 0},
            {"name": "value", "dtype": "float32", "shape": [8], "offset_bytes": 32},
        ],
    }


def test_the_views_of_a_recorded_plan_reach_its_workers() -> None:
    case = next(case for case in VIEWS if len(case["workers"]) > 1)
    with make_api() as api:
        request = next(plan["request"] for plan in PLANS if plan["name"] == case["plan"])
        assert api.put("/v1/pools/p", json={"plan": request}).status_code == 201
        for rank, worker in enumerate(case["workers"]):
            told = register(api, "/v1/pools/p", worker_id=f"w{rank}", rank=rank)
            for name, view in worker["layers"].items():
                assert {key: told["memory"]["layers"][name][key] for key in view} == view


def test_a_pool_of_sizes_has_workers_without_tensors() -> None:
    with make_api() as api:
        told = register(api, make_pool(api))
    assert (told["tensors"], told["groups"], told["layout"], told["memory"]) == ([], [], None, None)


def test_a_rank_that_the_plan_does_not_have_is_refused() -> None:
    with make_api() as api:
        pool = make_planned_pool(api, num_ranks=2)
        body = {"worker_id": "w", "rank": 2, "device": "cpu", "incarnation": "a"}
        reply = api.post(f"{pool}/workers", json=body)
        assert api.get(f"{pool}/workers").json() == {"epoch": 1, "num_ranks": 2, "workers": []}
    assert reply.status_code == 422
    assert reply.json()["errors"] == [{"field": "rank", "message": "the pool's plan has 2 ranks, from 0"}]


def test_a_worker_that_registers_again_with_its_memory_changes_nothing() -> None:
    with make_api() as api:
        pool = make_planned_pool(api)
        register(api, pool)
        cache_prefix(api, pool, make_lease(api, pool))
        assert register(api, pool)["epoch"] == 1
        assert num_hit_tokens(api, pool) == 8


def test_a_restarted_worker_begins_an_epoch_in_which_nothing_is_cached() -> None:
    with make_api() as api:
        pool = make_planned_pool(api)
        register(api, pool, "a")
        lease = make_lease(api, pool)
        cache_prefix(api, pool, lease)
        assert num_hit_tokens(api, pool) == 8
        assert register(api, pool, "b")["epoch"] == 2
        assert num_hit_tokens(api, pool) == 0
        assert api.get(f"{pool}/audit").json()["ok"]
        # Under the old lease nothing goes on, whether or not its holder says which epoch it means.
        commit = {"lease_id": lease, "sequence_id": "s", "num_computed_tokens": 9}
        for told in ({}, {"epoch": 1}):
            reply = api.post(f"{pool}/commit", json={**commit, **told})
            assert (reply.status_code, reply.json()["code"], reply.json()["epoch"]) == (409, "stale_epoch", 2)
        # Its blocks stay held until they are given back, and all begins again under a new one.
        held = api.get(f"{pool}/stats").json()["num_held_blocks"]
        assert held > 0
        assert api.delete(f"{pool}/leases/{lease}").json()["num_freed_blocks"] == held
        cache_prefix(api, pool, make_lease(api, pool))
        assert num_hit_tokens(api, pool) == 8


def test_a_repeat_of_a_call_of_an_earlier_epoch_gets_no_blocks_of_it() -> None:
    with make_api() as api:
        pool = make_planned_pool(api)
        register(api, pool, "a")
        lease = make_lease(api, pool)
        cache_prefix(api, pool, lease)
        ask = {"lease_id": lease, "sequence_id": "t", "num_tokens": 9, "block_hashes": block_hashes(1, 2)}
        key = {"Idempotency-Key": "once"}
        assert api.post(f"{pool}/allocate", json=ask, headers=key).json()["num_cached_tokens"] == 8
        register(api, pool, "b")
        again = api.post(f"{pool}/allocate", json=ask, headers=key)
        assert (again.status_code, again.json()["code"]) == (409, "stale_epoch")


def test_a_first_worker_trusts_nothing_that_was_cached_before_it_came() -> None:
    with make_api() as api:
        pool = make_planned_pool(api)
        assert register(api, pool, worker_id="w0")["epoch"] == 1
        cache_prefix(api, pool, make_lease(api, pool))
        assert api.delete(f"{pool}/workers/w0").json() == {"epoch": 2, "worker_id": "w0"}
        assert num_hit_tokens(api, pool) == 0
        assert register(api, pool, worker_id="w1")["epoch"] == 3  # blocks are held, by an old lease


def test_an_earlier_incarnation_is_told_to_stop() -> None:
    with make_api() as api:
        pool = make_planned_pool(api)
        register(api, pool, "a")
        register(api, pool, "b")
        late = api.post(f"{pool}/workers/w/heartbeat", json={"incarnation": "a"})
        assert (late.status_code, late.json()["code"]) == (409, "worker_replaced")
        late = api.request("DELETE", f"{pool}/workers/w", json={"incarnation": "a"})
        assert (late.status_code, late.json()["code"]) == (409, "worker_replaced")
        noted = api.post(f"{pool}/workers/w/heartbeat", json={"incarnation": "b"}).json()
    assert noted == {"epoch": 2, "worker_id": "w", "heartbeat_ms": 1_000}


def test_while_a_worker_is_lost_no_blocks_are_given_but_all_can_be_given_back() -> None:
    with make_api() as api:
        pool = make_planned_pool(api, worker_timeout_ms=1_000)
        register(api, pool)
        lease = make_lease(api, pool)
        cache_prefix(api, pool, lease)
        time.sleep(1.1)
        (worker,) = api.get(f"{pool}/workers").json()["workers"]
        assert worker["state"] == "lost"
        assert worker["silent_ms"] >= 1_000
        assert api.get(f"{pool}/stats").json()["num_lost_workers"] == 1
        assert 'blockyard_pool_workers{pool="planned",state="lost"} 1.0' in api.get("/metrics").text
        ask = {"lease_id": lease, "sequence_id": "t", "num_tokens": 4}
        key = {"Idempotency-Key": "once"}
        refused = api.post(f"{pool}/allocate", json=ask, headers=key)
        assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
        assert (refused.json()["lost_ranks"], refused.json()["retry_after_ms"]) == ([0], 200)
        step = {"lease_id": lease, "admit": [{"sequence_id": "t", "num_tokens": 4}]}
        assert api.post(f"{pool}/step", json=step).json()["code"] == "not_ready"
        assert api.post(f"{pool}/step", json={"lease_id": lease}).status_code == 200
        assert api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": ["s"]}).status_code == 200
        # It calls again, with what it had: the same request, under the same key, is done now.
        assert api.post(f"{pool}/workers/w/heartbeat").json()["epoch"] == 1
        assert api.post(f"{pool}/allocate", json=ask, headers=key).status_code == 200
        assert num_hit_tokens(api, pool) == 8


def test_once_a_worker_has_come_all_ranks_have_to_be_there() -> None:
    with make_api() as api:
        pool = make_planned_pool(api, num_ranks=2)
        lease = make_lease(api, pool)
        ask = {"lease_id": lease, "sequence_id": "s", "num_tokens": 4}
        assert api.post(f"{pool}/allocate", json=ask).status_code == 200  # nobody says that there are workers
        api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": ["s"]})
        register(api, pool, worker_id="w0", rank=0)
        refused = api.post(f"{pool}/allocate", json=ask).json()
        assert (refused["code"], refused["lost_ranks"]) == ("not_ready", [1])
        register(api, pool, worker_id="w1", rank=1)
        assert api.post(f"{pool}/allocate", json=ask).status_code == 200
        api.delete(f"{pool}/workers/w0")
        ask["lease_id"] = make_lease(api, pool)
        assert api.post(f"{pool}/allocate", json=ask).json()["lost_ranks"] == [0]


def test_a_pool_may_go_on_without_a_lost_worker() -> None:
    with make_api() as api:
        pool = make_planned_pool(api, worker_timeout_ms=1, needs_all_workers=False)
        register(api, pool)
        time.sleep(0.01)
        cache_prefix(api, pool, make_lease(api, pool))
        assert api.get(f"{pool}/stats").json()["num_lost_workers"] == 1


def test_a_lost_workers_rank_may_be_taken_by_another() -> None:
    with make_api() as api:
        pool = make_planned_pool(api, worker_timeout_ms=20)
        register(api, pool, worker_id="first")
        time.sleep(0.05)
        assert register(api, pool, worker_id="second")["epoch"] == 2
        assert [each["worker_id"] for each in api.get(f"{pool}/workers").json()["workers"]] == ["second"]


@pytest.mark.parametrize(
    "fault",
    [
        {"rank": -1},
        {"rank": "0"},
        {"worker_id": ""},
        {"worker_id": "a\nb"},
        {"worker_id": "a\n"},
        {"incarnation": None},
        {"incarnation": 1.5},
        {"x": 1},
    ],
    ids=str,
)
def test_a_faulty_registration_is_refused(fault: dict[str, Any]) -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {"worker_id": "w", "rank": 0, "device": "cpu", "incarnation": "a", **fault}
        reply = api.post(f"{pool}/workers", json=body)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")
        assert api.get(f"{pool}/workers").json()["workers"] == []


def test_a_registration_under_a_key_is_done_once() -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {"worker_id": "w", "rank": 0, "device": "cpu", "incarnation": "a"}
        key = {"Idempotency-Key": "once"}
        assert api.post(f"{pool}/workers", json=body, headers=key).json()["epoch"] == 1
        register(api, pool, "b")
        assert api.post(f"{pool}/workers", json=body, headers=key).json()["epoch"] == 1
        assert api.get(f"{pool}/workers").json()["workers"][0]["incarnation"] == "b"
        other = api.post(f"{pool}/workers", json={**body, "incarnation": "c"}, headers=key)
        assert other.json()["code"] == "invalid_request"


def test_a_worker_may_have_any_name() -> None:
    with make_api() as api:
        pool = make_pool(api)
        register(api, pool, worker_id="host-1/gpu 0", incarnation=7)
        assert api.post(f"{pool}/workers/host-1%2Fgpu%200/heartbeat", json={"incarnation": 7}).is_success
        assert api.delete(f"{pool}/workers/host-1%2Fgpu%200").is_success
