"""The OpenAPI document is exact: which codes an operation gives, and what its bodies look like."""

import json
from typing import Any

import pytest

from api.support import make_api, make_lease, make_pool
from blockyard.core.errors import ERRORS
from blockyard.planning.errors import PLAN_ERRORS
from blockyard.server.app import create_app
from blockyard.server.events.messages import KvBatch, KvSnapshotReply
from blockyard.server.settings import Settings


def document() -> dict[str, Any]:
    return create_app(Settings()).api.openapi()


def responses() -> dict[str, dict[str, Any]]:
    """Of every operation under /v1, by method and path."""
    return {
        f"{method} {path}": operation["responses"]
        for path, item in document()["paths"].items()
        if path.startswith("/v1")
        for method, operation in item.items()
    }


def codes(answers: dict[str, Any]) -> set[str]:
    return {
        code
        for status, answer in answers.items()
        if int(status) >= 300
        for code in answer["content"]["application/problem+json"]["schema"]["properties"]["code"]["enum"]
    }


def test_no_operation_documents_a_range_of_statuses() -> None:
    assert {
        status for answers in responses().values() for status in answers if not status.isdecimal()
    } == set()


def test_every_code_is_some_operations() -> None:
    documented = set().union(*(codes(answers) for answers in responses().values()))
    assert {error.code for error in (*ERRORS, *PLAN_ERRORS)} <= documented


def test_a_path_names_all_its_methods_where_it_refuses_one() -> None:
    with make_api() as api:
        answer = api.request("PATCH", "/v1/pools/pool")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, PUT"


@pytest.mark.parametrize("key", ["01", "+1", " 1", "1_0", "1.0", "-0"])
def test_a_handle_has_one_name_in_a_step(key: str) -> None:
    """Else the second of ``1`` and ``01`` would pass for both."""
    with make_api() as api:
        pool = make_pool(api)
        extend = {"sequences": [], "num_tokens": [], "token_ids": {"1": [1], key: [2]}}
        answer = api.post(f"{pool}/step", json={"lease_id": make_lease(api, pool), "extend": extend})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    "body", [rb'{"hf_config": {"model_type": "\ud800"}}', b'{"max_model_len": NaN}', b"\xff"]
)
def test_a_plans_body_that_is_no_json_in_unicode_is_refused(body: bytes) -> None:
    with make_api() as api:
        answer = api.post("/v1/plans", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": "body", "message": "is not JSON in UTF-8"}]


def test_events_have_the_fields_that_are_documented_and_no_others() -> None:
    with make_api() as api:
        pool = make_pool(api, block_size=2, events=True, publish="on_allocate")
        allocation = {
            "lease_id": make_lease(api, pool),
            "sequence_id": "s",
            "num_tokens": 4,
            "token_ids": [1, 2, 3, 4],
            "cache_salt": "salt",
            "lora": {"name": "adapter", "path": "/adapter"},
        }
        assert api.post(f"{pool}/allocate", json=allocation).status_code == 200
        told = api.get(f"{pool}/events/snapshot").json()
    assert told["events"]
    assert KvSnapshotReply.model_validate(told).model_dump(exclude_unset=True) == told
    head = {name: value for name, value in told.items() if name != "topic"}
    removed = {"type": "BlockRemoved", "block_hashes": ["00"], "medium": "GPU", "group_idx": 0}
    batch = {**head, "events": [*told["events"], removed, {"type": "AllBlocksCleared"}]}
    assert KvBatch.model_validate_json(json.dumps(batch)).model_dump(exclude_unset=True) == batch
