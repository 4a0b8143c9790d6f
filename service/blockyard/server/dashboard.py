"""`GET /dashboard`: one page with its script, style and icon, all from this package.

The page reads the same routes as any other client. Nothing is fetched from elsewhere, nothing is inline, and
the browser is told to keep it so.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Response

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


PAGE = "dashboard.html"
JAVASCRIPT = "text/javascript; charset=utf-8"
ASSETS = (
    Asset(PAGE, "text/html; charset=utf-8"),
    Asset("dashboard.css", "text/css; charset=utf-8"),
    Asset("icon.svg", "image/svg+xml"),
    Asset("dashboard.js", JAVASCRIPT),
    Asset("dom.js", JAVASCRIPT),
    Asset("figures.js", JAVASCRIPT),
    Asset("pool_details.js", JAVASCRIPT),
    Asset("pool_table.js", JAVASCRIPT),
    Asset("server.js", JAVASCRIPT),
)


def dashboard_routes() -> APIRouter:
    """The routes of `ASSETS`; the page itself stands in the OpenAPI document, its parts do not."""
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
    return router


def _endpoint(asset: Asset) -> Callable[[], Awaitable[Response]]:
    content = files("blockyard.server").joinpath("static", asset.file).read_bytes()

    async def endpoint() -> Response:
        return Response(content, headers=HEADERS, media_type=asset.media_type)

    return endpoint
