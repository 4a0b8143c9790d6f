"""The chosen pool in a real browser: its figures, the map of its blocks, charts, leases and workers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from server_process import ServerProcess
from waiting import wait_for
from web.browser import PHONE, WIDE, Visit, visiting

MAX_DELAY_S = 1.0
"""Within which an allocation is seen."""

NOTE_WHEN_SHOWN = """([selector, text]) => {
  window.shownAt = new Promise((resolve) => {
    const timer = setInterval(() => {
      if (document.querySelector(selector)?.textContent !== text) return;
      clearInterval(timer);
      resolve(Date.now());
    }, 10);
  });
}"""
"""Notes when the element of a selector has a text."""

PIXEL = """(block) => {
  const canvas = document.getElementById("map");
  const data = canvas.getContext("2d").getImageData(block * 18 + 4, 4, 1, 1).data;
  return [...data].slice(0, 3);
}"""
"""The colour of a block in the first row of a map of large cells."""


def make_pool(server: ServerProcess, name: str = "pool", num_blocks: int = 11, **options: Any) -> str:
    path = f"/v1/pools/{name}"
    body = {"num_blocks": num_blocks, "block_size": 16, **options}
    assert server.call("PUT", path, body)[0] == 201
    return path


def make_lease(server: ServerProcess, pool: str, holder: str = "a scheduler") -> str:
    lease: str = server.call("POST", f"{pool}/leases", {"holder": holder, "ttl_ms": 60_000})[1]["lease_id"]
    return lease


def hold(
    server: ServerProcess, pool: str, lease: str, name: str, num_blocks: int, first_token: int = 0
) -> None:
    """A sequence of its own with ``num_blocks`` blocks, all but the last one of known content."""
    num_tokens = 16 * num_blocks
    tokens = list(range(first_token, first_token + num_tokens))
    body = {"lease_id": lease, "sequence_id": name, "num_tokens": num_tokens, "token_ids": tokens}
    assert server.call("POST", f"{pool}/allocate", body)[0] == 200
    commit = {"lease_id": lease, "sequence_id": name, "num_computed_tokens": num_tokens - 16}
    assert server.call("POST", f"{pool}/commit", commit)[0] == 200


def fill(server: ServerProcess, pool: str) -> tuple[str, str]:
    """Two leases: one holds 4 blocks, one of them raw; the other 2, after it gave back 3."""
    one, two = make_lease(server, pool, "one"), make_lease(server, pool, "two")
    hold(server, pool, one, "a", 3)
    raw = {"lease_id": one, "num_blocks": 1}
    assert server.call("POST", f"{pool}/blocks/allocate", raw)[0] == 200
    hold(server, pool, two, "b", 2, first_token=1_000)
    hold(server, pool, two, "c", 3, first_token=2_000)
    freed = {"lease_id": two, "sequence_ids": ["c"]}
    assert server.call("POST", f"{pool}/free", freed)[0] == 200
    return one, two


@contextmanager
def viewing(
    browser: Browser, server: ServerProcess, pool: str = "pool", viewport: ViewportSize = WIDE
) -> Iterator[Visit]:
    """The dashboard with ``pool`` chosen and its map read."""
    with visiting(browser, f"{server.url}/dashboard#pool={pool}", viewport) as visit:
        expect(visit.page.locator("#legend li")).not_to_have_count(0, timeout=30_000)
        yield visit


def pairs(page: Page, list_id: str) -> dict[str, str]:
    """What a <dl> says."""
    terms = page.locator(f"#{list_id} dt").all_text_contents()
    return dict(zip(terms, page.locator(f"#{list_id} dd").all_text_contents(), strict=True))


def legend(page: Page) -> dict[str, int]:
    texts = page.locator("#legend li").evaluate_all(
        "(items) => items.map((item) => [item.querySelector('span').textContent, "
        "item.querySelector('b').textContent])"
    )
    return {label: int(number.replace(",", "")) for label, number in texts}


def cells(page: Page, table: str) -> list[list[str]]:
    rows = page.get_by_role("table", name=table).locator("tbody tr").all()
    return [row.locator("td").all_text_contents() for row in rows]


def wait_until(page: Page, condition: str) -> None:
    """Asked from here: the page's policy forbids playwright's own way, which evaluates a text in it."""
    wait_for(lambda: page.evaluate(condition))


def wait_for_charts(page: Page) -> None:
    """Loading their library keeps the page busy for a while, once."""
    expect(page.locator("#usage-chart .main-svg").first).to_be_visible(timeout=30_000)


def delay_s(page: Page, server: ServerProcess, pool: str, selector: str, text: str) -> float:
    """How long after an allocation of one block returned ``selector`` has ``text``."""
    lease = make_lease(server, pool)
    page.evaluate(NOTE_WHEN_SHOWN, [selector, text])
    assert server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 1})[0] == 200
    returned_s = time.time()
    return float(page.evaluate("window.shownAt")) / 1e3 - returned_s


def test_it_shows_the_figures_of_stats(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    fill(server, pool)
    stats = server.call("GET", f"{pool}/stats")[1]
    with viewing(browser, server) as visit:
        assert pairs(visit.page, "tiles") == {
            "Usage": "60.0 %",
            "Held": str(stats["num_held_blocks"]),
            "Free": str(stats["num_free_blocks"]),
            "Cached": str(stats["num_cached_blocks"]),
            "Blocks": "11",
            "Hit rate": "0 %",
            "Eviction": f"adaptive, weight {stats['eviction_weight']:g}",
            "Sequences": str(stats["num_sequences"]),
            "Leases": str(stats["num_leases"]),
            "Workers": "0",
            "Epoch": "1",
        }
        counters = pairs(visit.page, "counters")
        assert [int(text.replace(",", "")) for text in counters.values()] == list(stats["counters"].values())


def test_an_allocation_is_seen_within_a_second(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    with viewing(browser, server) as visit:
        held = "#tiles > div:nth-child(2) dd"
        wait_for_charts(visit.page)
        assert delay_s(visit.page, server, pool, held, "1") < MAX_DELAY_S
        assert delay_s(visit.page, server, pool, held, "2") < MAX_DELAY_S


def test_the_whole_page_asks_no_other_host_and_complains_of_nothing(
    browser: Browser, server: ServerProcess
) -> None:
    pool = make_pool(server)
    fill(server, pool)
    with viewing(browser, server) as visit:
        chart = visit.page.locator("#usage-chart .main-svg").first
        expect(chart).to_be_visible(timeout=30_000)
        chart.hover()
        visit.page.get_by_role("radio", name="By lease").check()
        visit.page.locator("#map").hover()
        expect(visit.page.locator("#legend")).to_contain_text("two")
        visit.page.wait_for_timeout(1_200)  # charts are drawn once more
        assert any("plotly.js" in url for url in visit.urls)
        assert all(url.startswith(server.url + "/") for url in visit.urls)
        assert visit.complaints == []


def test_the_map_counts_what_an_audit_counts(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    fill(server, pool)
    audit = server.call("GET", f"{pool}/audit")[1]
    with viewing(browser, server) as visit:
        by_state = legend(visit.page)
        assert by_state == {"null": 1, "free": 2, "free and cached": 2, "held": 3, "held and cached": 3}
        assert by_state["free"] + by_state["free and cached"] == audit["num_free_blocks"]
        assert by_state["held"] + by_state["held and cached"] == audit["num_held_blocks"]
        visit.page.get_by_role("radio", name="By lease").check()
        expect(visit.page.locator("#legend")).to_contain_text("one")
        holders = {holder["holder"]: holder["num_blocks"] for holder in audit["holders"]}
        assert legend(visit.page) == {"null": 1, "free": 2, "free and cached": 2, **holders}


def test_the_map_follows_allocations(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    lease = make_lease(server, pool)
    with viewing(browser, server) as visit:
        held = visit.page.locator("#legend li").nth(3).locator("b")
        expect(held).to_have_text("0")
        for number in range(1, 4):
            server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 1})
            expect(held).to_have_text(str(number))


def test_keys_move_over_the_map_and_say_what_lies_there(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    lease = make_lease(server, pool, "a scheduler")
    server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 2})
    with viewing(browser, server) as visit:
        page = visit.page
        blocks = page.get_by_role("application")
        expect(blocks).to_have_attribute("aria-label", "Blocks of pool by state: 1 null, 8 free, 2 held")
        page.get_by_role("radio", name="By state").focus()
        page.keyboard.press("Tab")
        expect(blocks).to_be_focused()
        said = page.locator("#map-said")
        for key, words in (
            ("Home", "Block 0: null"),
            ("ArrowRight", "Block 1: held"),
            ("End", "Block 10: free"),
            ("ArrowRight", "Block 10: free"),
            ("ArrowLeft", "Block 9: free"),
        ):
            page.keyboard.press(key)
            expect(said).to_have_text(words)
            expect(page.locator("#map-words")).to_have_text(words)
        page.keyboard.press("Home")
        page.get_by_role("radio", name="By lease").check()
        expect(page.locator("#legend")).to_contain_text("a scheduler")
        blocks.focus()
        page.keyboard.press("ArrowRight")
        expect(said).to_have_text(f"Block 1: a scheduler (lease {lease[:8]})")


def test_a_pointer_over_the_map_says_what_lies_there(browser: Browser, server: ServerProcess) -> None:
    make_pool(server)
    with viewing(browser, server) as visit:
        visit.page.locator("#map").hover(position={"x": 18 * 2 + 5, "y": 5})
        expect(visit.page.locator("#map-words")).to_have_text("Block 2: free")
        expect(visit.page.locator("#map-cursor")).to_be_visible()
        visit.page.locator("#tiles").hover()
        expect(visit.page.locator("#map-cursor")).to_be_hidden()


def test_a_map_of_a_million_blocks_is_shown_and_the_page_goes_on(
    browser: Browser, server: ServerProcess
) -> None:
    pool = make_pool(server, num_blocks=1_000_000)
    lease = make_lease(server, pool)
    server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 400_000})
    with viewing(browser, server) as visit:
        page = visit.page
        numbers = {"null": 1, "free": 599_999, "free and cached": 0, "held": 400_000, "held and cached": 0}
        assert legend(page) == numbers
        wait_for_charts(page)
        page.locator("#map").focus()
        page.keyboard.press("End")
        page.keyboard.press("Home")
        expect(page.locator("#map-said")).to_contain_text("1 null")
        expect(page.locator("#map-said")).to_contain_text("Blocks 0 to ")
        held = "#tiles > div:nth-child(2) dd"
        assert delay_s(page, server, pool, held, "400,001") < MAX_DELAY_S
        page.get_by_role("radio", name="By lease").check()
        expect(page.locator("#legend")).to_contain_text("a scheduler", timeout=30_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_blocks_have_the_colours_of_the_scheme(browser: Browser, server: ServerProcess, scheme: Any) -> None:
    pool = make_pool(server)
    lease = make_lease(server, pool)
    server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 1})
    with viewing(browser, server) as visit:
        visit.page.emulate_media(color_scheme=scheme)
        for block, name in enumerate(("null", "held", "free")):
            color = visit.page.evaluate(
                f"getComputedStyle(document.documentElement).getPropertyValue('--map-{name}').trim()"
            )
            expected = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
            wait_for(lambda: visit.page.evaluate(PIXEL, block) == expected)  # noqa: B023 - called at once


def test_charts_get_points_and_are_said_in_words(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    fill(server, pool)
    with viewing(browser, server) as visit:
        page = visit.page
        for chart in ("usage", "rates", "latency"):
            wait_until(page, f"document.getElementById('{chart}-chart').data?.[0].x.length >= 3")
        usage = page.evaluate("document.getElementById('usage-chart').data[0].y")
        assert set(usage) == {0.6}
        lease = make_lease(server, pool)
        server.call("POST", f"{pool}/blocks/allocate", {"lease_id": lease, "num_blocks": 1})
        wait_until(page, "document.getElementById('usage-chart').data[0].y.at(-1) === 0.7")
        expect(page.locator("#usage-words li").first).to_have_text("Usage 70.0 %")
        for number in range(5):
            hold(server, pool, lease, f"more {number}", 1)
            server.call("POST", f"{pool}/free", {"lease_id": lease, "sequence_ids": [f"more {number}"]})
        wait_until(page, "Math.max(...document.getElementById('rates-chart').data[0].y) > 0")
        wait_until(page, "document.getElementById('latency-chart').data[2].y.some((ms) => ms > 0)")
        expect(page.locator("#latency-words li:visible").first).to_contain_text("p99")


def test_a_pause_is_a_gap_in_the_charts(browser: Browser, server: ServerProcess) -> None:
    make_pool(server)
    with viewing(browser, server) as visit:
        page = visit.page
        wait_until(page, "document.getElementById('usage-chart').data?.[0].y.length >= 2")
        page.get_by_role("button", name="Pause").click()
        wait_until(page, "document.getElementById('usage-chart').data[0].y.at(-1) === null")
        num_points = page.evaluate("document.getElementById('usage-chart').data[0].y.length")
        page.wait_for_timeout(2_200)
        assert page.evaluate("document.getElementById('usage-chart').data[0].y.length") == num_points
        page.get_by_role("button", name="Pause").click()
        wait_until(page, "document.getElementById('usage-chart').data[0].y.at(-1) === 0")


def test_without_plotly_it_says_what_brings_charts_and_shows_the_rest(
    browser: Browser, server: ServerProcess
) -> None:
    pool = make_pool(server)
    fill(server, pool)
    without: dict[str, Any] = {"script": None, "style_ids": [], "extra": "blockyard[dashboard]"}
    with visiting(browser, server.url + "/dashboard") as visit:
        visit.page.route("**/dashboard/charts.json", lambda route: route.fulfill(json=without))
        visit.page.get_by_role("button", name="pool", exact=True).click()
        expect(visit.page.get_by_text("pip install 'blockyard[dashboard]'")).to_be_visible()
        expect(visit.page.locator("#usage-words li").first).to_have_text("Usage 60.0 %")
        expect(visit.page.locator("#legend")).to_contain_text("held")
        assert not any("plotly.js" in url for url in visit.urls)
        assert visit.complaints == []


def test_until_a_pool_is_chosen_no_charts_are_asked_for(browser: Browser, server: ServerProcess) -> None:
    make_pool(server)
    with visiting(browser, server.url + "/dashboard") as visit:
        expect(visit.page.get_by_role("button", name="pool", exact=True)).to_be_visible()
        visit.page.wait_for_timeout(500)
        assert not any("charts.json" in url or "plotly.js" in url for url in visit.urls)


def test_leases_and_workers_are_listed_with_their_health(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server, worker_timeout_ms=2_000, needs_all_workers=False)
    for rank in range(2):
        worker = {"worker_id": f"w{rank}", "rank": rank, "device": "cuda:0", "incarnation": "a"}
        assert server.call("POST", f"{pool}/workers", worker)[0] == 200
    one, two = fill(server, pool)
    with viewing(browser, server) as visit:
        page = visit.page
        expect(page.locator("#leases tbody tr")).to_have_count(2)
        assert [row[:4] for row in cells(page, "Leases")] == [
            ["one", one[:8], "1", "4"],
            ["two", two[:8], "1", "2"],
        ]
        assert all(row[4].startswith("in ") for row in cells(page, "Leases"))
        health = page.locator("#workers [data-mark]")
        expect(health).to_have_text(["lost", "lost"], timeout=10_000)
        server.call("POST", f"{pool}/workers/w1/heartbeat", {"incarnation": "a"})
        expect(health).to_have_text(["lost", "alive"])
        assert [row[0] for row in cells(page, "Workers")] == ["w0", "w1"]


def test_pins_are_listed_while_there_are_any(browser: Browser, server: ServerProcess) -> None:
    pool = make_pool(server)
    fill(server, pool)
    with viewing(browser, server) as visit:
        page = visit.page
        expect(page.locator("#pins-panel")).to_be_hidden()
        pinned = [
            server.call(
                "POST", f"{pool}/pins", {"token_ids": list(range(32)), "ttl_ms": 60_000, "hard": hard}
            )[1]
            for hard in (False, True)
        ]
        expect(page.locator("#pins tbody tr")).to_have_count(2)
        soft, hard = (pin["pin_id"] for pin in pinned)
        assert [row[:4] for row in cells(page, "Pins")] == [
            [hard[:8], "hard", "32", "2"],
            [soft[:8], "soft", "32", "none"],
        ]
        note = "2 pins. 2 cached blocks are evicted last, 2 are held."
        expect(page.locator("#pins-note")).to_have_text(note)
        for pin_id in (soft, hard):
            server.call("DELETE", f"{pool}/pins/{pin_id}")
        expect(page.locator("#pins-panel")).to_be_hidden()


def test_a_pool_that_is_deleted_is_no_longer_shown(browser: Browser, server: ServerProcess) -> None:
    make_pool(server)
    make_pool(server, "other")
    with viewing(browser, server) as visit:
        server.call("DELETE", "/v1/pools/pool")
        expect(visit.page.locator("#details")).to_be_hidden()
        expect(visit.page.get_by_role("button", name="other")).to_be_visible()


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_part_is_wider_than_the_screen(
    browser: Browser, server: ServerProcess, viewport: ViewportSize, scheme: Any
) -> None:
    pool = make_pool(server, num_blocks=5_000, needs_all_workers=False)
    worker = {"worker_id": "w" * 100, "rank": 0, "device": "d" * 100, "incarnation": "a"}
    assert server.call("POST", f"{pool}/workers", worker)[0] == 200
    hold(server, pool, make_lease(server, pool, "h" * 100), "a", 100)
    with viewing(browser, server, viewport=viewport) as visit:
        visit.page.emulate_media(color_scheme=scheme)
        expect(visit.page.locator("#latency-chart .main-svg").first).to_be_visible(timeout=30_000)
        visit.page.get_by_role("radio", name="By lease").check()
        visit.page.get_by_role("button", name="Recount").click()
        expect(visit.page.get_by_role("table", name="Audit")).to_be_visible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert visit.complaints == []
