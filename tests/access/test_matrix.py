"""Every operation of the OpenAPI document against every kind of caller: who passes, and who is told what."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from access.token_files import add_token, bearing
from api.support import make_lease, make_pool
from blockyard.server.app import create_app
from blockyard.server.settings import Settings

REACHED, OUT_OF_REACH, ABSENT = "acme-pool", "other-pool", "acme-other"

OPEN = {"GET /healthz", "GET /readyz", "GET /dashboard"}
LOOKING = {
    "POST /v1/hash",
    "POST /v1/plans",
    "GET /v1/cluster",
    "GET /v1/pools",
    "GET /v1/pools/{pool}",
    "GET /v1/pools/{pool}/stats",
    "GET /v1/pools/{pool}/plan",
    "GET /v1/pools/{pool}/sequences/{sequence_id}",
    "GET /v1/pools/{pool}/tenants",
    "GET /v1/pools/{pool}/tenants/{tenant}",
    "GET /v1/pools/{pool}/workers",
    "POST /v1/pools/{pool}/lookup",
    "POST /v1/pools/{pool}/prefixes",
    "GET /v1/pools/{pool}/pins",
}
SEEING_ALL_TENANTS = {
    "GET /metrics",
    "GET /v1/watch",
    "GET /v1/pools/{pool}/audit",
    "GET /v1/pools/{pool}/map",
    "GET /v1/pools/{pool}/events",
    "GET /v1/pools/{pool}/events/snapshot",
}
HOLDING = {
    "POST /v1/pools/{pool}/step",
    "POST /v1/pools/{pool}/allocate",
    "POST /v1/pools/{pool}/commit",
    "POST /v1/pools/{pool}/fork",
    "POST /v1/pools/{pool}/free",
    "POST /v1/pools/{pool}/leases",
    "POST /v1/pools/{pool}/leases/{lease_id}/renew",
    "DELETE /v1/pools/{pool}/leases/{lease_id}",
    "POST /v1/pools/{pool}/pins",
    "POST /v1/pools/{pool}/pins/{pin_id}/renew",
    "DELETE /v1/pools/{pool}/pins/{pin_id}",
    "POST /v1/pools/{pool}/blocks/allocate",
    "POST /v1/pools/{pool}/blocks/free",
}
WORKING = {
    "POST /v1/pools/{pool}/workers",
    "POST /v1/pools/{pool}/workers/{worker_id}/heartbeat",
    "DELETE /v1/pools/{pool}/workers/{worker_id}",
}
MANAGING = {
    "PUT /v1/pools/{pool}",
    "DELETE /v1/pools/{pool}",
    "POST /v1/pools/{pool}/reset_prefix_cache",
    "PUT /v1/pools/{pool}/tenants/{tenant}",
    "DELETE /v1/pools/{pool}/tenants/{tenant}",
}
MAY = {
    "read": LOOKING | SEEING_ALL_TENANTS,
    "allocate": LOOKING | SEEING_ALL_TENANTS | HOLDING,
    "work": LOOKING | SEEING_ALL_TENANTS | WORKING,
    "admin": LOOKING | SEEING_ALL_TENANTS | HOLDING | WORKING | MANAGING,
}
MAKING = "PUT /v1/pools/{pool}"

DOCUMENT = create_app(Settings()).api.openapi()
OPERATIONS = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A server with a token for each scope and tenant, and two pools, one of them out of their reach."""

    api: TestClient
    tokens: dict[tuple[str, str], str]

    def ask(self, operation: str, pool: str, token: str | None) -> Response:
        method, path = operation.split(" ")
        names = {
            "pool": pool,
            "sequence_id": "s",
            "lease_id": "l",
            "worker_id": "w",
            "tenant": "t",
            "pin_id": "p",
        }
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        if path.endswith(("/events", "/watch")):
            path += "?unknown=1"  # it would go on for ever: who passes is told of the mistake
        body: dict[str, str] | None = None if method == "GET" else {}
        return self.api.request(method, path, headers=bearing(token), json=body)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    file = tmp_path_factory.mktemp("tokens") / "tokens.json"
    tokens = {
        (scope, tenant): add_token(file, scope, tenant=tenant, pools=("acme-*",))
        for scope, tenant in product(MAY, ("", "acme"))
    }
    maker = add_token(file, "admin")
    with TestClient(create_app(Settings(token_file=str(file)))) as api:
        api.headers.update(bearing(maker))
        for name in (REACHED, OUT_OF_REACH):
            pool = make_pool(api, name, events=True)
            lease = make_lease(api, pool, ttl_ms=3_600_000)
            api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 1})
        del api.headers["Authorization"]
        yield Guarded(api, tokens)


def expected(operation: str, scope: str, tenant: str, pool: str) -> str:
    """What the caller is told: a code, or that it passes."""
    if operation in OPEN:
        return "passes"
    if operation not in MAY[scope]:
        return "forbidden"
    if "{pool}" in operation and pool == OUT_OF_REACH:
        return "forbidden" if operation == MAKING else "pool_not_found"
    if operation in SEEING_ALL_TENANTS and tenant and scope != "admin":
        return "forbidden"
    return "passes"


def told(reply: Response) -> str:
    if reply.headers.get("content-type") != "application/problem+json":
        return "passes"
    code: str = reply.json()["code"]
    status = {"unauthorized": 401, "forbidden": 403, "pool_not_found": 404}.get(code)
    if status is None:
        return "passes"  # to be refused for what is in the request
    assert reply.status_code == status
    return code


def test_every_operation_has_a_place_in_this_statement() -> None:
    assert set(OPERATIONS) == OPEN | MAY["admin"]
    assert len(OPERATIONS) == len(set(OPERATIONS))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_scope_a_tenant_and_a_pool_decide_who_passes(guarded: Guarded, operation: str) -> None:
    found = {
        (scope, tenant, pool): told(guarded.ask(operation, pool, token))
        for (scope, tenant), token in guarded.tokens.items()
        for pool in (REACHED, OUT_OF_REACH)
    }
    assert found == {case: expected(operation, *case) for case in found}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nobody_passes_without_a_known_token_where_it_is_not_open(guarded: Guarded, operation: str) -> None:
    admin = guarded.tokens["admin", ""]
    wrong = [None, "", admin[:-1], admin + "0", admin.replace("byd_", "byd_0"), admin.partition("_")[2], "x"]
    for token in wrong:
        reply = guarded.ask(operation, REACHED, token)
        if operation in OPEN:
            assert reply.status_code == 200
        else:
            assert told(reply) == "unauthorized"
            assert reply.headers["www-authenticate"] == "Bearer"


def test_a_pool_out_of_reach_is_answered_like_one_that_is_not_there(guarded: Guarded) -> None:
    reader = guarded.tokens["read", ""]
    there = guarded.ask("GET /v1/pools/{pool}/stats", OUT_OF_REACH, reader)
    absent = guarded.ask("GET /v1/pools/{pool}/stats", ABSENT, reader)
    assert there.content.replace(OUT_OF_REACH.encode(), ABSENT.encode()) == absent.content
    assert (there.status_code, there.headers) == (absent.status_code, absent.headers)


def test_lists_and_metrics_leave_out_pools_out_of_reach(guarded: Guarded) -> None:
    reader = guarded.tokens["read", ""]
    listed = guarded.ask("GET /v1/pools", REACHED, reader).json()["pools"]
    assert [pool["pool"] for pool in listed] == [REACHED]
    text = guarded.ask("GET /metrics", REACHED, reader).text
    assert f'pool="{REACHED}"' in text
    assert OUT_OF_REACH not in text
    assert "blockyard_pools 1.0" in text


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/static-offline-docs/swagger-ui.css"])
def test_documentation_is_open(guarded: Guarded, path: str) -> None:
    assert guarded.api.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/", "/nothing", "/v1", "/v1/pools/", "//healthz", "/dashboard/nothing"])
def test_an_unknown_path_is_found_missing_by_those_with_a_token_alone(guarded: Guarded, path: str) -> None:
    assert told(guarded.api.get(path)) == "unauthorized"
    token = guarded.tokens["read", "acme"]
    assert guarded.api.get(path, headers=bearing(token), follow_redirects=False).status_code in (307, 404)


def test_a_method_that_a_route_does_not_have_is_no_way_around_its_rule(guarded: Guarded) -> None:
    pool = f"/v1/pools/{REACHED}"
    for method in ("HEAD", "PATCH", "OPTIONS", "TRACE"):
        assert guarded.api.request(method, pool).status_code == 401
        shown = guarded.api.request(method, pool, headers=bearing(guarded.tokens["read", ""]))
        assert shown.status_code == 405


def test_the_document_says_what_each_operation_asks_for(guarded: Guarded) -> None:
    document = guarded.api.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            if name in OPEN:
                assert operation["security"] == []
                assert "x-scope" not in operation
            else:
                assert operation["security"] == [{"bearer": []}]
                scopes = [scope for scope in ("read", "allocate", "work", "admin") if name in MAY[scope]]
                assert operation["x-scope"] == scopes[0]
                assert f"Scope: `{scopes[0]}`" in operation["description"]
    without = DOCUMENT["paths"]["/v1/pools"]["get"]["security"]
    assert without == [{"bearer": []}, {}]


def test_without_a_token_file_everyone_may_do_everything() -> None:
    with TestClient(create_app(Settings())) as api:
        made = Guarded(api, {})
        make_pool(api, REACHED)
        for operation in OPERATIONS:
            if operation != "DELETE /v1/pools/{pool}":
                assert told(made.ask(operation, REACHED, None)) == "passes"
