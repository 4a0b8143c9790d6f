"""The dashboard of a server that wants a token: it asks, and says what is wrong with one that is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from server_process import ServerProcess, run, running_server
from web.browser import PHONE, WIDE, visiting

REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
"""What the browser itself says of the first request."""


def add_token(file: Path, *options: str) -> str:
    added = run("token", "add", "--token-file", file, *options)
    assert added.returncode == 0, added.stderr
    return added.stdout.strip()


@contextmanager
def guarded_server(file: Path) -> Iterator[tuple[ServerProcess, str]]:
    """A server with one pool that wants a token, and an admin's."""
    admin = add_token(file, "--scope", "admin")
    with running_server("--log-level", "warning", "--token-file", str(file)) as server:
        body = {"num_blocks": 11, "block_size": 16}
        assert server.call("PUT", "/v1/pools/secret", body, Authorization=f"Bearer {admin}")[0] == 201
        yield server, admin


def give(page: Page, token: str) -> None:
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Show pools").click()


def expect_asking(page: Page) -> None:
    expect(page.get_by_role("region", name="This server asks for a token")).to_be_visible()
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    expect(page.get_by_role("region", name="Pools")).to_be_hidden()
    expect(page.get_by_text("secret")).to_have_count(0)


def expect_pools(page: Page) -> None:
    expect(page.get_by_role("button", name="secret", exact=True)).to_be_visible()
    expect(page.locator("#sign-in")).to_be_hidden()


def stored(page: Page) -> list[str]:
    """What the browser keeps of the page: of this tab, and for longer."""
    kept: list[str] = page.evaluate(
        "[...Object.values(sessionStorage), ...Object.values(localStorage), document.cookie].filter(Boolean)"
    )
    return kept


def test_it_asks_for_a_token_and_shows_the_pools_once_it_has_one(browser: Browser, tmp_path: Path) -> None:
    reader = add_token(tmp_path / "tokens.json", "--scope", "read")
    with (
        guarded_server(tmp_path / "tokens.json") as (server, _),
        visiting(browser, server.url + "/dashboard#pool=secret") as visit,
    ):
        page = visit.page
        expect_asking(page)
        expect(page.locator("#connection")).to_have_text("Token needed")
        give(page, "byd_no_token")
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        expect_asking(page)
        give(page, "two words")
        expect(page.get_by_role("alert")).to_contain_text("This is no token")
        assert stored(page) == []
        give(page, reader)
        expect_pools(page)
        page.get_by_role("button", name="Recount").click()
        expect(page.locator("#verdict")).to_contain_text("10 free + 0 held + 1 null = 11 blocks")
        assert stored(page) == [reader]
        assert reader not in page.content()
        assert all(reader not in url for url in visit.urls)


def test_a_token_survives_a_reload_and_is_forgotten_when_that_is_asked_for(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        guarded_server(tmp_path / "tokens.json") as (server, admin),
        visiting(browser, server.url + "/dashboard") as visit,
    ):
        page = visit.page
        give(page, admin)
        expect_pools(page)
        expect(page.get_by_role("link", name="Metrics")).to_be_hidden()
        page.reload()
        expect_pools(page)
        page.get_by_role("button", name="Forget token").click()
        expect_asking(page)
        assert stored(page) == []
        page.reload()
        expect_asking(page)
        assert set(visit.complaints) == {REFUSED}


def test_a_browser_that_keeps_nothing_asks_again_when_the_page_is_loaded_anew(
    browser: Browser, tmp_path: Path
) -> None:
    denied = "Object.defineProperty(window, 'sessionStorage', {get() { throw new DOMException(); }})"
    with (
        guarded_server(tmp_path / "tokens.json") as (server, admin),
        visiting(browser, server.url + "/dashboard") as visit,
    ):
        visit.page.add_init_script(denied)
        visit.page.reload()
        expect_asking(visit.page)
        give(visit.page, admin)
        expect_pools(visit.page)
        visit.page.reload()
        expect_asking(visit.page)


def test_a_server_that_is_gone_is_told_from_a_wrong_token(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with guarded_server(file) as (server, admin), visiting(browser, server.url + "/dashboard") as visit:
        expect_asking(visit.page)
        server.stop()
        give(visit.page, admin)
        expect(visit.page.locator("#failure")).to_contain_text("The server cannot be reached.")
        expect(visit.page.locator("#token-wrong")).to_be_empty()
        with running_server("--port", str(server.port), "--token-file", str(file)) as successor:
            body = {"num_blocks": 11, "block_size": 16}
            bearer = f"Bearer {admin}"
            assert successor.call("PUT", "/v1/pools/secret", body, Authorization=bearer)[0] == 201
            expect_pools(visit.page)  # by itself, with the token that was given


def test_a_tenants_token_is_told_that_it_is_not_enough(browser: Browser, tmp_path: Path) -> None:
    tenants = add_token(tmp_path / "tokens.json", "--tenant", "acme", "--scope", "allocate")
    with (
        guarded_server(tmp_path / "tokens.json") as (server, admin),
        visiting(browser, server.url + "/dashboard") as visit,
    ):
        give(visit.page, tenants)
        expect(visit.page.get_by_role("alert")).to_contain_text("too few rights")
        expect_asking(visit.page)
        give(visit.page, admin)
        expect_pools(visit.page)


def test_when_its_token_is_revoked_it_shows_nothing_more_and_asks_again(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    with guarded_server(file) as (server, admin), visiting(browser, server.url + "/dashboard") as visit:
        give(visit.page, admin)
        expect_pools(visit.page)
        assert run("token", "revoke", "--token-file", file, admin.split("_")[1]).returncode == 0
        expect(visit.page.get_by_role("alert")).to_contain_text("may have been revoked", timeout=20_000)
        expect_asking(visit.page)


def test_while_it_asks_it_sends_nothing(browser: Browser, tmp_path: Path) -> None:
    with (
        guarded_server(tmp_path / "tokens.json") as (server, _),
        visiting(browser, server.url + "/dashboard") as visit,
    ):
        expect_asking(visit.page)
        num_before = len(visit.urls)
        visit.page.wait_for_timeout(2_500)
        assert len(visit.urls) == num_before


def test_a_server_without_tokens_is_not_asked_for_one(browser: Browser, server: ServerProcess) -> None:
    with visiting(browser, server.url + "/dashboard") as visit:
        expect(visit.page.locator("#connection")).to_have_attribute("data-state", "live")
        expect(visit.page.locator("#sign-in")).to_be_hidden()
        expect(visit.page.get_by_role("button", name="Forget token")).to_be_hidden()
        expect(visit.page.get_by_role("link", name="Metrics")).to_be_visible()
        assert visit.complaints == []


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_form_is_no_wider_than_the_screen(
    browser: Browser, tmp_path: Path, viewport: ViewportSize
) -> None:
    with (
        guarded_server(tmp_path / "tokens.json") as (server, _),
        visiting(browser, server.url + "/dashboard", viewport) as visit,
    ):
        give(visit.page, "x" * 1_000)
        expect(visit.page.get_by_role("alert")).to_contain_text("does not know this token")
        assert visit.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]


MESSAGES = (
    "retry: 1000\n\n: ping\n\n"
    'event: figures\ndata: {"a":1}\nid: 7\n\n'
    "event:figures\r\ndata:two\r\ndata: lines: and a colon\r\n\r\n"
    "data\n\nevent: none\n\ndata: é€😀\n\nevent: figures\ndata: unfinished\n"
)
EXPECTED = [
    ["figures", '{"a":1}'],
    ["figures", "two\nlines: and a colon"],
    ["message", ""],
    ["message", "é€😀"],
]
READ_ALL = """
async ([text, ends]) => {
  const { EventMessages } = await import("/dashboard/event_messages.js");
  return ends.map((end) => {
    const messages = new EventMessages();
    const parts = [text.slice(0, end), text.slice(end)];
    return parts.flatMap((part) => messages.read(part)).map(({ event, data }) => [event, data]);
  });
}
"""


def test_messages_are_the_same_wherever_their_text_is_cut(browser: Browser, server: ServerProcess) -> None:
    with visiting(browser, server.url + "/dashboard") as visit:
        ends = range(len(MESSAGES) + 2)  # a character of two units has an end inside
        read = visit.page.evaluate(READ_ALL, [MESSAGES, list(ends)])
    assert read == [EXPECTED] * len(ends)
