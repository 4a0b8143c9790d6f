"""`GET /dashboard`: one page with its scripts, style and icon, from this package, and charts from plotly's.

The page reads the same routes as any other client. Nothing is fetched from elsewhere, nothing is inline, and
the browser is told to keep it so.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from blockyard.server.charts import EXTRA, Charts, Script

# plotly needs no exception: its rules go into a sheet of the page (dashboard.html), and styles of maps, which
# it would add, are told to be there (chart_library.js).
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file in ``static/``, and as what it is served."""

    file: str
    media_type: str

    @property
    def path(self) -> str:
        """Where it is served: the page at ``/dashboard``, its parts below."""
        return "/dashboard" if self.file == PAGE else f"/dashboard/{self.file}"


FOR_A_YEAR = "public, max-age=31536000, immutable"
"""Of what has its version in its address."""

PAGE = "dashboard.html"
JAVASCRIPT = "text/javascript; charset=utf-8"
CSS = "text/css; charset=utf-8"
ASSETS = (
    Asset(PAGE, "text/html; charset=utf-8"),
    Asset("dashboard.css", CSS),
    Asset("cluster.css", CSS),
    Asset("pool.css", CSS),
    Asset("token_form.css", CSS),
    Asset("charts.css", CSS),
    Asset("icon.svg", "image/svg+xml"),
    Asset("block_map.js", JAVASCRIPT),
    Asset("chart_library.js", JAVASCRIPT),
    Asset("cluster.js", JAVASCRIPT),
    Asset("cluster_nodes.js", JAVASCRIPT),
    Asset("cluster_pools.js", JAVASCRIPT),
    Asset("dashboard.js", JAVASCRIPT),
    Asset("dom.js", JAVASCRIPT),
    Asset("event_messages.js", JAVASCRIPT),
    Asset("figures.js", JAVASCRIPT),
    Asset("history.js", JAVASCRIPT),
    Asset("line_chart.js", JAVASCRIPT),
    Asset("map_colors.js", JAVASCRIPT),
    Asset("map_cursor.js", JAVASCRIPT),
    Asset("map_grid.js", JAVASCRIPT),
    Asset("map_painting.js", JAVASCRIPT),
    Asset("pool_audit.js", JAVASCRIPT),
    Asset("pool_charts.js", JAVASCRIPT),
    Asset("pool_details.js", JAVASCRIPT),
    Asset("pool_members.js", JAVASCRIPT),
    Asset("pool_pins.js", JAVASCRIPT),
    Asset("pool_table.js", JAVASCRIPT),
    Asset("pool_tenants.js", JAVASCRIPT),
    Asset("rows.js", JAVASCRIPT),
    Asset("server.js", JAVASCRIPT),
    Asset("token.js", JAVASCRIPT),
    Asset("token_form.js", JAVASCRIPT),
    Asset("watch.js", JAVASCRIPT),
)


class ChartsReply(BaseModel):
    """Where the page finds the library that draws its charts."""

    script: str | None = Field(description="Beside the page; null where it is not installed.")
    style_ids: list[str] = Field(description="Of elements that it would add, were they not there already.")
    extra: str = Field(EXTRA, description="What brings it.")


def dashboard_routes(charts: Charts | None) -> APIRouter:
    """The routes of `ASSETS` and of ``charts``, None for none.

    The page itself stands in the OpenAPI document, its parts do not.
    """
    router = APIRouter()
    for asset in ASSETS:
        router.add_api_route(
            asset.path,
            _endpoint(asset),
            name=asset.file,
            tags=["watching"],
            summary="A page that watches the pools.",
            response_class=Response,
            responses={200: {"content": {"text/html": {}}}},
            include_in_schema=asset.file == PAGE,
        )
    _add_charts(router, charts)
    return router


def _add_charts(router: APIRouter, charts: Charts | None) -> None:
    reading = asyncio.Lock()
    known: Script | None = None

    async def script() -> Script:
        """Read once, when it is first asked for."""
        nonlocal known
        assert charts is not None
        async with reading:
            if known is None:
                known = await asyncio.to_thread(charts.read)
        return known

    @router.get("/dashboard/charts.json", include_in_schema=False)
    async def chart_library(response: Response) -> ChartsReply:
        response.headers["Cache-Control"] = "no-cache"
        if charts is None:
            return ChartsReply(script=None, style_ids=[])
        path = f"dashboard/plotly.js?version={charts.version}"
        return ChartsReply(script=path, style_ids=(await script()).style_ids)

    if charts is None:
        return

    @router.get("/dashboard/plotly.js", include_in_schema=False)
    async def plotly(request: Request) -> Response:
        content = (await script()).compressed
        headers = {**HEADERS, "Cache-Control": FOR_A_YEAR, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            content = await asyncio.to_thread(gzip.decompress, content)
        return Response(content, headers=headers, media_type=JAVASCRIPT)


def _endpoint(asset: Asset) -> Callable[[], Awaitable[Response]]:
    content = files("blockyard.server").joinpath("static", asset.file).read_bytes()

    async def endpoint() -> Response:
        return Response(content, headers=HEADERS, media_type=asset.media_type)

    return endpoint
