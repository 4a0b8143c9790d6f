"""The library of the dashboard's charts: served from its package, which need not be there."""

import subprocess
import sys

from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.support import make_api
from blockyard.server.charts import find_charts
from blockyard.server.dashboard import HEADERS, dashboard_routes

IMPORTED = """
import sys
from blockyard.server.app import create_app
from blockyard.server.settings import Settings

create_app(Settings(volatile=True))
print("plotly" in sys.modules)
"""


def test_the_script_is_served_as_the_package_ships_it() -> None:
    charts = find_charts()
    assert charts is not None
    with make_api() as api:
        found = api.get("/dashboard/charts.json").json()
        assert found["script"] == f"dashboard/plotly.js?version={charts.version}"
        packed = api.get(f"/{found['script']}")
        plain = api.get(f"/{found['script']}", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content == charts.path.read_bytes()
    assert int(packed.headers["content-length"]) < len(plain.content) / 2


def test_the_script_is_kept_by_its_version_and_under_the_pages_policy() -> None:
    with make_api() as api:
        script = api.get("/dashboard/plotly.js?version=0")
        assert api.get("/dashboard/charts.json").headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["vary"] == "Accept-Encoding"
    assert script.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


def test_a_package_that_is_not_there_has_no_script() -> None:
    assert find_charts("no-such-package") is None


def test_a_package_that_ships_no_script_has_none() -> None:
    assert find_charts("fastapi") is None


def test_without_the_package_the_page_is_told_what_brings_it() -> None:
    app = FastAPI()
    app.include_router(dashboard_routes(None))
    with TestClient(app) as api:
        assert api.get("/dashboard/charts.json").json() == {
            "script": None,
            "style_ids": [],
            "extra": "blockyard[dashboard]",
        }
        assert api.get("/dashboard/plotly.js").status_code == 404
        assert api.get("/dashboard").status_code == 200


def test_the_server_does_not_import_the_package() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("False", "")
