"""The dashboard's files: all served, all our own, and nothing that the browser is told to refuse."""

import re
from importlib.resources import files

import pytest

from api.support import make_api
from blockyard.server.dashboard import ASSETS, PAGE, Asset

every_asset = pytest.mark.parametrize("asset", ASSETS, ids=[asset.file for asset in ASSETS])

STATIC = files("blockyard.server").joinpath("static")
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
"""A name, not an address: nothing is fetched from it."""


def text_of(asset: Asset) -> str:
    return STATIC.joinpath(asset.file).read_text()


@every_asset
def test_it_is_served_with_a_strict_policy(asset: Asset) -> None:
    with make_api() as api:
        reply = api.get(asset.path)
    assert reply.status_code == 200
    assert reply.content == STATIC.joinpath(asset.file).read_bytes()
    assert reply.headers["content-type"] == asset.media_type
    assert reply.headers["x-content-type-options"] == "nosniff"
    policy = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


@every_asset
def test_it_names_no_other_host(asset: Asset) -> None:
    text = text_of(asset).replace(SVG_NAMESPACE, "")
    assert re.findall(r"(?:https?:|wss?:|data:)?//[\w.-]+\.\w+|@import|url\(", text) == []


def test_the_page_holds_nothing_inline() -> None:
    inline = r"<style|<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|javascript:"
    assert re.findall(inline, text_of(ASSETS[0])) == []


@every_asset
def test_no_script_makes_markup_from_text(asset: Asset) -> None:
    makes_markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b"
    assert re.findall(makes_markup, text_of(asset)) == []


def test_every_file_is_an_asset() -> None:
    assert {file.name for file in STATIC.iterdir()} == {asset.file for asset in ASSETS}


def test_everything_the_page_and_its_scripts_name_is_served() -> None:
    named = set(re.findall(r'(?:href|src)="dashboard/([^"]+)"', text_of(ASSETS[0])))
    for asset in ASSETS:
        named.update(re.findall(r'from "\./([^"]+)"', text_of(asset)))
    assert named == {asset.file for asset in ASSETS} - {PAGE}


def test_the_page_stands_in_the_openapi_document_and_its_parts_do_not() -> None:
    with make_api() as api:
        paths = api.get("/openapi.json").json()["paths"]
    assert [path for path in paths if path.startswith("/dashboard")] == ["/dashboard"]
