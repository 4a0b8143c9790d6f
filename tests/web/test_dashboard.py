"""The dashboard in a real browser: it shows what the server says, and says when the server says nothing."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from server_process import ServerProcess, running_server
from web.browser import PHONE, WIDE, visiting


def make_pool(server: ServerProcess, name: str = "pool", num_blocks: int = 11) -> str:
    path = f"/v1/pools/{name}"
    body = {"num_blocks": num_blocks, "block_size": 16, "events": True}
    assert server.call("PUT", path, body)[0] == 201
    return path


def hold(server: ServerProcess, pool: str, num_tokens: int, holder: str = "a scheduler") -> dict[str, Any]:
    """Let one new sequence of a new lease hold blocks; returns the pool's figures after it."""
    status, lease = server.call("POST", f"{pool}/leases", {"holder": holder, "ttl_ms": 60_000})
    assert status == 201
    body = {"lease_id": lease["lease_id"], "sequence_id": f"of {holder}", "num_tokens": num_tokens}
    assert server.call("POST", f"{pool}/allocate", body)[0] == 200
    figures: dict[str, Any] = server.call("GET", f"{pool}/stats")[1]
    return figures


def expect_state(page: Page, state: str, timeout_ms: float = 10_000) -> None:
    expect(page.locator("#connection")).to_have_attribute("data-state", state, timeout=timeout_ms)


def test_it_shows_the_figures_of_stats_and_follows_them(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    with visiting(browser, server.url + "/dashboard") as visit:
        expect_state(visit.page, "live")
        assert visit.pool_row("pool") == ["0 %", "10", "0", "0", "no queries yet", "0", "0", "0"]
        figures = hold(server, pool, num_tokens=60)
        assert (figures["num_held_blocks"], figures["num_free_blocks"]) == (4, 6)
        expect(visit.page.get_by_role("meter", name="Usage of pool")).to_have_attribute(
            "aria-valuenow", "40.0"
        )
        assert visit.pool_row("pool") == ["40.0 %", "6", "4", "0", "0 %", "1", "1", "0"]
        assert visit.complaints == []
        assert all(url.startswith(server.url + "/") for url in visit.urls)


def test_it_shows_that_a_worker_is_lost(browser: Browser, server: ServerProcess) -> None:
    body = {"num_blocks": 11, "block_size": 16, "worker_timeout_ms": 1_000}
    server.call("PUT", "/v1/pools/pool", body)
    for rank in range(2):
        worker = {"worker_id": f"w{rank}", "rank": rank, "device": "cuda:0", "incarnation": "a"}
        assert server.call("POST", "/v1/pools/pool/workers", worker)[0] == 200
    with visiting(browser, server.url + "/dashboard") as visit:
        cell = visit.page.locator("[data-column=Workers]")
        expect(cell).to_have_text("2, 2 lost", timeout=10_000)
        expect(cell).to_have_attribute("data-bad", "")
        server.call("POST", "/v1/pools/pool/workers/w0/heartbeat", {"incarnation": "a"})
        expect(cell).to_have_text("2, 1 lost")


def test_a_chosen_pool_shows_its_configuration_and_who_holds_its_blocks(
    browser: Browser, server: ServerProcess
) -> None:
    hold(server, make_pool(server), num_tokens=60, holder="<b>scheduler</b>")
    with visiting(browser, server.url + "/dashboard") as visit:
        page = visit.page
        page.get_by_role("button", name="pool", exact=True).click()
        details = page.get_by_role("region", name="pool", exact=True)
        expect(details.get_by_role("heading", name="pool", exact=True)).to_be_focused()
        expect(details).to_contain_text("Full attention, block size 16")
        expect(details).to_contain_text("hash form int64, needs token ids no")
        expect(details).not_to_contain_text("1 null")
        details.get_by_role("button", name="Recount").click()
        expect(details).to_contain_text("6 free + 4 held + 1 null = 11 blocks")
        row = details.get_by_role("table", name="Audit").get_by_role("row").nth(1)
        expect(row).to_contain_text("<b>scheduler</b>")
        assert row.locator("td.number").all_text_contents() == ["1", "4"]
        details.get_by_role("button", name="Close").click()
        expect(details).to_be_hidden()
        expect(page.get_by_role("button", name="pool", exact=True)).to_be_focused()
        assert visit.complaints == []


def test_it_says_that_there_are_no_pools_and_shows_the_first(browser: Browser, server: ServerProcess) -> None:
    with visiting(browser, server.url + "/dashboard") as visit:
        expect(visit.page.get_by_text("No pools yet")).to_be_visible()
        make_pool(server, "first")
        expect(visit.page.get_by_role("button", name="first")).to_be_visible()
        expect(visit.page.get_by_text("No pools yet")).to_be_hidden()


def test_it_says_that_the_server_is_gone_and_goes_on_once_it_is_back(browser: Browser) -> None:
    with running_server() as server:
        port = server.port
        make_pool(server)
        with visiting(browser, server.url + "/dashboard") as visit:
            expect_state(visit.page, "live")
            server.process.terminate()
            server.process.wait(timeout=30)
            expect_state(visit.page, "failed")
            expect(visit.page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
            with running_server("--port", str(port)) as successor:
                make_pool(successor, "after")
                expect_state(visit.page, "live")
                expect(visit.page.get_by_role("alert")).to_be_hidden()
                expect(visit.page.get_by_role("button", name="after")).to_be_visible()


def test_while_paused_it_asks_for_nothing(browser: Browser, server: ServerProcess) -> None:
    make_pool(server)
    with visiting(browser, server.url + "/dashboard") as visit:
        expect_state(visit.page, "live")
        visit.page.get_by_role("button", name="Pause").click()
        expect_state(visit.page, "paused")
        visit.page.wait_for_load_state("networkidle")
        num_before = len(visit.urls)
        visit.page.wait_for_timeout(1_500)
        assert len(visit.urls) == num_before
        visit.page.get_by_role("button", name="Pause").click()
        expect_state(visit.page, "live")


def test_out_of_sight_it_asks_for_nothing_and_then_goes_on(browser: Browser, server: ServerProcess) -> None:
    make_pool(server)
    with visiting(browser, server.url + "/dashboard") as visit:
        expect_state(visit.page, "live")
        show = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
        show += "document.dispatchEvent(new Event('visibilitychange')); }"
        visit.page.evaluate(show, arg=True)
        visit.page.wait_for_load_state("networkidle")
        num_before = len(visit.urls)
        visit.page.wait_for_timeout(1_500)
        assert len(visit.urls) == num_before
        with visit.page.expect_request("**/v1/watch?*"):
            visit.page.evaluate(show, arg=False)


def test_of_many_pools_a_page_is_shown_and_a_name_finds_one(browser: Browser, server: ServerProcess) -> None:
    for number in range(60):
        make_pool(server, f"pool-{number:02}", num_blocks=2)
    with visiting(browser, server.url + "/dashboard") as visit:
        rows = visit.page.locator("#pools tbody tr")
        expect(rows).to_have_count(50)
        visit.page.get_by_role("button", name="Next").click()
        expect(rows).to_have_count(10)
        expect(visit.page.get_by_text("51 to 60 of 60")).to_be_visible()
        visit.page.get_by_role("searchbox", name="Filter pools by name").fill("-07")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("pool-07")


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_is_wider_than_the_screen(
    browser: Browser, server: ServerProcess, viewport: ViewportSize
) -> None:
    name = "p" * 128
    hold(server, make_pool(server, name, num_blocks=1_000_000), num_tokens=16, holder="h" * 100)
    with visiting(browser, f"{server.url}/dashboard#pool={name}", viewport) as visit:
        visit.page.get_by_role("button", name="Recount").click()
        expect(visit.page.get_by_role("table", name="Audit")).to_be_visible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
