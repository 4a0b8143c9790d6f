"""Two tenants of one pool, over every operation of the OpenAPI document: neither sees or touches the other.

What one asks with the other's names is answered, byte for byte, as with names that there are not.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from access.token_files import add_token, bearing
from api.support import block_hashes, make_pool
from blockyard.core.ids import TenantId
from blockyard.core.tenant_hash import tenant_hashes
from blockyard.server.app import create_app
from blockyard.server.settings import Settings

POOL = "/v1/pools/pool"

NAMING: dict[str, list[dict[str, Any]]] = {
    "GET /v1/pools/{pool}/sequences/{sequence_id}": [{}],
    "GET /v1/pools/{pool}/tenants/{tenant}": [{}],
    "POST /v1/pools/{pool}/leases/{lease_id}/renew": [{}],
    "DELETE /v1/pools/{pool}/leases/{lease_id}": [{}],
    "POST /v1/pools/{pool}/pins/{pin_id}/renew": [{}, {"ttl_ms": 1000}],
    "DELETE /v1/pools/{pool}/pins/{pin_id}": [{}],
    "POST /v1/pools/{pool}/step": [
        {"lease_id": "{lease_id}"},
        {"lease_id": "{own_lease}", "free": {"sequences": ["{handle}"]}},
        {"lease_id": "{own_lease}", "commit": {"sequences": ["{handle}"], "num_computed_tokens": [4]}},
        {"lease_id": "{own_lease}", "extend": {"sequences": ["{handle}"], "num_tokens": [9]}},
    ],
    "POST /v1/pools/{pool}/allocate": [
        {"lease_id": "{lease_id}", "sequence_id": "{sequence_id}", "num_tokens": 9},
        {"lease_id": "{lease_id}", "sequence_id": "new", "num_tokens": 9, "wait_ms": 100},
    ],
    "POST /v1/pools/{pool}/commit": [
        {"lease_id": "{lease_id}", "sequence_id": "{sequence_id}", "num_computed_tokens": 4},
        {"lease_id": "{own_lease}", "sequence_id": "{sequence_id}", "num_computed_tokens": 4},
    ],
    "POST /v1/pools/{pool}/fork": [
        {"lease_id": "{lease_id}", "sequence_id": "{sequence_id}", "new_sequence_ids": ["new"]},
        {"lease_id": "{own_lease}", "sequence_id": "{sequence_id}", "new_sequence_ids": ["new"]},
    ],
    "POST /v1/pools/{pool}/free": [
        {"lease_id": "{lease_id}", "sequence_ids": ["{sequence_id}"]},
        {"lease_id": "{own_lease}", "sequence_ids": ["{sequence_id}"]},
    ],
    "POST /v1/pools/{pool}/blocks/allocate": [{"lease_id": "{lease_id}", "num_blocks": 1}],
    "POST /v1/pools/{pool}/blocks/free": [{"lease_id": "{lease_id}", "block_ids": [1]}],
}
"""Where leases, sequences, blocks and tenants are named; the bodies, with places for names."""

NAMING_NOTHING = {
    "GET /healthz",
    "GET /readyz",
    "GET /dashboard",
    "POST /v1/hash",
    "POST /v1/plans",
    "GET /v1/cluster",
    "GET /v1/pools",
    "GET /v1/pools/{pool}",
    "GET /v1/pools/{pool}/stats",
    "GET /v1/pools/{pool}/plan",
    "POST /v1/pools/{pool}/lookup",
    "POST /v1/pools/{pool}/prefixes",
    "POST /v1/pools/{pool}/pins",
    "GET /v1/pools/{pool}/pins",
    "POST /v1/pools/{pool}/leases",
    "GET /v1/pools/{pool}/tenants",
    "GET /v1/pools/{pool}/workers",
    "POST /v1/pools/{pool}/workers",
    "POST /v1/pools/{pool}/workers/{worker_id}/heartbeat",
    "DELETE /v1/pools/{pool}/workers/{worker_id}",
}
"""What is no tenant's own."""

NOT_FOR_TENANTS = {
    "GET /metrics",
    "GET /v1/watch",
    "GET /v1/pools/{pool}/audit",
    "GET /v1/pools/{pool}/map",
    "GET /v1/pools/{pool}/events",
    "GET /v1/pools/{pool}/events/snapshot",
    "PUT /v1/pools/{pool}",
    "DELETE /v1/pools/{pool}",
    "POST /v1/pools/{pool}/reset_prefix_cache",
    "PUT /v1/pools/{pool}/tenants/{tenant}",
    "DELETE /v1/pools/{pool}/tenants/{tenant}",
}
"""What shows or changes what all tenants have: see `test_matrix`."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A server, its operator's token, and of two tenants a token, a lease, a pin, and a sequence's handle."""

    api: TestClient
    operator: str
    tokens: dict[str, str]
    leases: dict[str, str]
    pins: dict[str, str]
    handles: dict[str, int]

    def call(self, tenant: str, method: str, path: str, body: Any = None, **headers: str) -> Response:
        token = self.operator if tenant == "operator" else self.tokens[tenant]
        return self.api.request(method, path, json=body, headers={**bearing(token), **headers})

    def names(self, asking: str, of: str | None) -> dict[str, Any]:
        """What ``asking`` can name: what is ``of`` a tenant, or of nobody."""
        return {
            "pool": "pool",
            "own_lease": self.leases[asking],
            "lease_id": "f" * 32 if of is None else self.leases[of],
            "pin_id": "f" * 32 if of is None else self.pins[of],
            "sequence_id": "nobody-sequence" if of is None else f"{of}-sequence",
            "handle": 1_000_000 if of is None else self.handles[of],
            "tenant": "nobody" if of is None else of,
        }

    def audit(self) -> Any:
        return self.call("operator", "GET", f"{POOL}/audit").json()


@pytest.fixture
def shared(tmp_path: Any) -> Iterator[Shared]:
    file = tmp_path / "tokens.json"
    operator = add_token(file, "admin")
    tokens = {name: add_token(file, "allocate", tenant=name) for name in ("crimson", "azure")}
    with TestClient(create_app(Settings(token_file=str(file)))) as api:
        api.headers.update(bearing(operator))
        make_pool(api, num_blocks=40)
        del api.headers["Authorization"]
        found = Shared(api, operator, tokens, {}, {}, {})
        for name in tokens:
            granted = found.call(name, "POST", f"{POOL}/leases", {"holder": name, "ttl_ms": 60_000}).json()
            found.leases[name] = granted["lease_id"]
            pin = {"block_hashes": [name.encode().hex()], "ttl_ms": 60_000}
            found.pins[name] = found.call(name, "POST", f"{POOL}/pins", pin).json()["pin_id"]
            admission = {"lease_id": granted["lease_id"], "sequence_id": f"{name}-sequence", "num_tokens": 8}
            found.handles[name] = found.call(name, "POST", f"{POOL}/allocate", admission).json()["sequence"]
        yield found


def filled(template: Any, names: dict[str, Any]) -> Any:
    """``template`` with names in their places."""
    if isinstance(template, dict):
        return {key: filled(value, names) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, names) for value in template]
    if isinstance(template, str) and template.startswith("{"):
        return names[template.strip("{}")]
    return template


def told(reply: Response, names: dict[str, Any]) -> str:
    """The whole answer, but for the names that were asked for."""
    text = reply.text
    for key, name in names.items():
        text = text.replace(f"handle {name}" if key == "handle" else str(name), "?")
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    return json.dumps([reply.status_code, headers, text])


def test_every_operation_has_a_place_in_this_statement() -> None:
    document = create_app(Settings()).api.openapi()
    operations = {
        f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods
    }
    assert operations == {*NAMING} | NAMING_NOTHING | NOT_FOR_TENANTS


@pytest.mark.parametrize(
    ("operation", "body"), [(operation, body) for operation, bodies in NAMING.items() for body in bodies]
)
def test_anothers_names_are_names_that_there_are_not(
    shared: Shared, operation: str, body: dict[str, Any]
) -> None:
    method, template = operation.split(" ")
    before = shared.audit()
    for asking, other in (("crimson", "azure"), ("azure", "crimson")):
        answers = []
        for of in (None, other):
            names = shared.names(asking, of)
            path = template.format(**names)
            reply = shared.call(asking, method, path, None if method == "GET" else filled(body, names))
            asked = {key: name for key, name in names.items() if f"{{{key}}}" in f"{template} {body}"}
            answers.append(told(reply, asked))
        assert answers[0] == answers[1]
        assert "error" in answers[0] or '\\"unknown\\":[\\"?\\"]' in answers[0], "it was done"
    assert shared.audit() == before


def test_tenants_may_use_the_same_names_of_sequences(shared: Shared) -> None:
    for name, num_tokens in (("crimson", 4), ("azure", 12)):
        admission = {"lease_id": shared.leases[name], "sequence_id": "same", "num_tokens": num_tokens}
        assert shared.call(name, "POST", f"{POOL}/allocate", admission).status_code == 200
    for name, num_tokens in (("crimson", 4), ("azure", 12)):
        assert shared.call(name, "GET", f"{POOL}/sequences/same").json()["num_tokens"] == num_tokens
        asked = shared.call("operator", "GET", f"{POOL}/sequences/same?tenant={name}")
        assert asked.json()["num_tokens"] == num_tokens
    assert shared.call("operator", "GET", f"{POOL}/sequences/same").status_code == 404
    assert shared.call("crimson", "GET", f"{POOL}/sequences/azure-sequence?tenant=azure").status_code == 404


@pytest.mark.parametrize("path", ["leases", "allocate"])
def test_one_idempotency_key_of_two_tenants_is_two(shared: Shared, path: str) -> None:
    replies = []
    for name in ("crimson", "azure"):
        body: dict[str, Any] = {"holder": "h", "ttl_ms": 60_000}
        if path == "allocate":
            body = {"lease_id": shared.leases[name], "sequence_id": "keyed", "num_tokens": 4}
        key = {"Idempotency-Key": "same"}
        first, again = (shared.call(name, "POST", f"{POOL}/{path}", body, **key) for _ in range(2))
        named = "lease_id" if path == "leases" else "sequence"
        assert again.json()[named] == first.json()[named]
        replies.append(first.json()[named])
    assert replies[0] != replies[1]


def test_what_one_has_cached_is_no_hit_for_the_other(shared: Shared) -> None:
    content = {"num_tokens": 9, "block_hashes": block_hashes(1, 2)}
    allocate = {"lease_id": shared.leases["crimson"], "sequence_id": "cached", **content}
    shared.call("crimson", "POST", f"{POOL}/allocate", allocate)
    commit = {"lease_id": shared.leases["crimson"], "sequence_id": "cached", "num_computed_tokens": 8}
    shared.call("crimson", "POST", f"{POOL}/commit", commit)
    found = {
        name: shared.call(name, "POST", f"{POOL}/lookup", content).json()["num_cached_tokens"]
        for name in ("crimson", "azure", "operator")
    }
    assert found == {"crimson": 8, "azure": 0, "operator": 0}
    kept = tenant_hashes([bytes.fromhex(each) for each in block_hashes(1, 2)], TenantId("crimson"))
    as_kept = {"num_tokens": 9, "block_hashes": [each.hex() for each in kept]}
    assert shared.call("azure", "POST", f"{POOL}/lookup", as_kept).json()["num_cached_tokens"] == 0


def test_a_tenants_list_shows_itself_alone_and_an_operators_shows_all(shared: Shared) -> None:
    shared.call("operator", "PUT", f"{POOL}/tenants/crimson", {"guaranteed_blocks": 5, "weight": 2})
    (crimson,) = shared.call("crimson", "GET", f"{POOL}/tenants").json()["tenants"]
    assert crimson == {
        "tenant": "crimson",
        "guaranteed_blocks": 5,
        "max_blocks": None,
        "weight": 2,
        "num_held_blocks": 2,
        "num_leases": 1,
        "num_sequences": 1,
        "num_pins": 1,
        "num_waiting": 0,
    }
    listed = shared.call("operator", "GET", f"{POOL}/tenants").json()["tenants"]
    assert [tenant["tenant"] for tenant in listed] == ["azure", "crimson"]
    taken_back = shared.call("operator", "DELETE", f"{POOL}/tenants/crimson").json()
    assert (taken_back["guaranteed_blocks"], taken_back["num_held_blocks"]) == (0, 2)


def test_a_tenant_is_there_while_it_has_a_lease_a_pin_or_a_quota(shared: Shared) -> None:
    path = f"{POOL}/tenants/later"
    assert shared.call("operator", "GET", path).json()["code"] == "tenant_not_found"
    assert shared.call("operator", "PUT", path, {}).status_code == 200
    assert shared.call("operator", "GET", path).status_code == 200
    assert shared.call("operator", "DELETE", path).status_code == 200
    assert shared.call("operator", "GET", path).status_code == 404
    crimson = f"{POOL}/tenants/crimson"
    shared.call("crimson", "DELETE", f"{POOL}/leases/{shared.leases['crimson']}")
    assert shared.call("operator", "GET", crimson).status_code == 200
    shared.call("crimson", "DELETE", f"{POOL}/pins/{shared.pins['crimson']}")
    assert shared.call("operator", "GET", crimson).status_code == 404
    assert shared.call("crimson", "GET", crimson).json()["num_leases"] == 0


def test_a_tenant_over_its_quota_is_told_so_with_figures(shared: Shared) -> None:
    shared.call("operator", "PUT", f"{POOL}/tenants/azure", {"max_blocks": 3})
    ask = {"lease_id": shared.leases["azure"], "num_blocks": 2}
    reply = shared.call("azure", "POST", f"{POOL}/blocks/allocate", ask)
    figures = {"num_required_blocks": 2, "num_held_blocks": 2, "num_quota_blocks": 3}
    assert reply.status_code == 429
    assert reply.json().items() >= {"code": "quota_exceeded", **figures}.items()
    step = {"lease_id": shared.leases["azure"], "admit": [{"sequence_id": "s", "num_tokens": 8}]}
    (refused,) = shared.call("azure", "POST", f"{POOL}/step", step).json()["admit"]
    assert refused.items() >= {"code": "quota_exceeded", **figures}.items()


def test_more_than_there_is_cannot_be_guaranteed(shared: Shared) -> None:
    shared.call("operator", "PUT", f"{POOL}/tenants/azure", {"guaranteed_blocks": 30})
    reply = shared.call("operator", "PUT", f"{POOL}/tenants/crimson", {"guaranteed_blocks": 10})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "guaranteed_blocks")


@pytest.mark.parametrize("name", ["-red", "a" * 65, "*", "r d"])
def test_a_name_that_no_tenant_can_have_is_refused(shared: Shared, name: str) -> None:
    assert shared.call("operator", "PUT", f"{POOL}/tenants/{name}", {}).status_code == 422


def test_leases_and_sequences_of_a_tenant_are_bounded_and_repeats_are_none(tmp_path: Any) -> None:
    file = tmp_path / "tokens.json"
    token = add_token(file, "admin", tenant="crimson")
    settings = Settings(token_file=str(file), max_leases_per_tenant=1, max_sequences_per_tenant=2)
    with TestClient(create_app(settings), headers=bearing(token)) as api:
        pool = make_pool(api)
        body = {"holder": "h", "ttl_ms": 60_000}
        first = api.post(f"{pool}/leases", json=body, headers={"Idempotency-Key": "k"}).json()
        refused = api.post(f"{pool}/leases", json=body)
        assert refused.status_code == 429
        assert refused.json()["limit"] == "max_leases_per_tenant"
        again = api.post(f"{pool}/leases", json=body, headers={"Idempotency-Key": "k"}).json()
        lease = first["lease_id"]
        assert again["lease_id"] == lease
        for name in ("a", "b", "a"):
            ask = {"lease_id": lease, "sequence_id": name, "num_tokens": 4}
            assert api.post(f"{pool}/allocate", json=ask).status_code == 200
        third = api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "c", "num_tokens": 4})
        assert third.json().items() >= {"limit": "max_sequences_per_tenant", "max": 2}.items()
        admit = [{"sequence_id": name, "num_tokens": 4} for name in ("d", "e")]
        step = api.post(f"{pool}/step", json={"lease_id": lease, "free": {"sequences": [1]}, "admit": admit})
        assert step.json()["code"] == "limit_exceeded"
        swapped = api.post(
            f"{pool}/step", json={"lease_id": lease, "free": {"sequences": [1]}, "admit": admit[:1]}
        )
        assert swapped.json()["admit"][0]["sequence"] == 3


def test_workers_serve_all_tenants(shared: Shared) -> None:
    worker = {"worker_id": "w", "rank": 0, "device": "cpu", "incarnation": "1"}
    assert shared.call("operator", "POST", f"{POOL}/workers", worker).status_code == 200
    for name in ("crimson", "azure"):
        (seen,) = shared.call(name, "GET", f"{POOL}/workers").json()["workers"]
        assert seen["worker_id"] == "w"
