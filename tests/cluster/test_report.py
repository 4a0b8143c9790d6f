"""`GET /v1/cluster`: what a node tells of its cluster, and whom."""

from collections.abc import Callable

from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from api.support import make_api
from blockyard.server.access.principal import ANYONE, PRINCIPAL_KEY, Principal
from blockyard.server.access.principal import Scope as TokenScope
from blockyard.server.cluster.report import ClusterReport
from blockyard.server.cluster.routes import cluster_routes
from cluster.made_up_report import make_report


def asked_by(principal: Principal, report: Callable[[], ClusterReport]) -> ClusterReport:
    """What ``principal`` is told at a server that tells ``report``."""
    app = FastAPI()
    app.include_router(cluster_routes(report))

    async def let_in(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PRINCIPAL_KEY] = principal
        await app(scope, receive, send)

    reply = TestClient(let_in).get("/v1/cluster")
    assert reply.status_code == 200, reply.text
    return ClusterReport.model_validate(reply.json())


def reader(*pools: str) -> Principal:
    return Principal(scopes=frozenset({TokenScope.READ}), pools=pools)


def test_a_server_without_a_cluster_says_so() -> None:
    with make_api() as api:
        reply = api.get("/v1/cluster")
    assert (reply.status_code, reply.json()["code"]) == (404, "no_cluster")
    assert "--cluster" in reply.json()["detail"]


def test_a_node_tells_of_all_nodes_and_pools() -> None:
    assert asked_by(ANYONE, make_report) == make_report()


def test_each_time_it_is_asked_anew() -> None:
    lefts = iter((1_500, 0))
    told = [asked_by(ANYONE, lambda: make_report(lease_left_ms=next(lefts))) for _ in range(2)]
    assert [each.lease_left_ms for each in told] == [1_500, 0]


def test_pools_out_of_reach_are_neither_told_of_nor_counted() -> None:
    told = asked_by(reader("acme-*"), make_report)
    assert [each.pool for each in told.pools] == ["acme-chat", "acme-lost"]
    assert {each.node: (each.num_owned_pools, each.num_followed_pools) for each in told.nodes} == {
        "a": (1, 0),
        "b": (0, 1),
        "c": (0, 0),
    }
    assert [each.url for each in told.nodes] == [each.url for each in make_report().nodes]


def test_who_reaches_every_pool_by_its_pattern_is_told_of_all() -> None:
    assert asked_by(reader("acme-*", "other-*"), make_report) == make_report()


def test_the_dashboard_is_told_whether_there_is_a_cluster_to_ask_for() -> None:
    with make_api() as api:
        assert api.get("/dashboard/cluster.json").json() == {"is_node": False}
        assert api.get("/openapi.json").json()["paths"].keys() & {"/dashboard/cluster.json"} == set()
    app = FastAPI()
    app.include_router(cluster_routes(make_report))
    assert TestClient(app).get("/dashboard/cluster.json").json() == {"is_node": True}
