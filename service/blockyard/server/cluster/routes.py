"""`GET /v1/cluster`: which nodes there are, and who owns which pool."""

from collections.abc import Callable

from fastapi import APIRouter, Response
from pydantic import BaseModel

from blockyard.core.errors import NoCluster
from blockyard.server.access.protection import Asking
from blockyard.server.api_router import api_router
from blockyard.server.cluster.report import ClusterReport
from blockyard.server.refusals import refusals


class Membership(BaseModel):
    """Whether the dashboard has a cluster to ask for. A browser would log that there is none."""

    is_node: bool


def cluster_routes(report: Callable[[], ClusterReport] | None) -> APIRouter:
    """The routes over what ``report`` tells when it is asked; None: this server is no node of a cluster."""
    api = api_router(tag="watching")

    @api.get(
        "/cluster",
        summary="The cluster as this node knows it: its nodes, and who owns which pool.",
        description="Answered by every node, also by one without a lease, which answers for no pool.",
        response_model=ClusterReport,
        responses=refusals(NoCluster),
    )
    async def cluster(principal: Asking) -> Response:
        if report is None:
            raise NoCluster.of()
        told = report().reached_by(principal).model_dump_json()  # of a thousand pools within a millisecond
        return Response(told, headers={"cache-control": "no-store"}, media_type="application/json")

    router = APIRouter()
    router.include_router(api)

    @router.get("/dashboard/cluster.json", include_in_schema=False)
    async def membership(response: Response) -> Membership:
        response.headers["Cache-Control"] = "no-cache"
        return Membership(is_node=report is not None)

    return router
