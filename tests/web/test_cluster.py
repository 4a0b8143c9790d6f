"""The dashboard of a node: which nodes there are, who owns what, and when the node may not answer."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from blockyard.client import Client
from cluster.made_up_report import URL, make_node, make_pool, make_report
from cluster.told_cluster import ToldCluster, telling_server
from server_process import ServerProcess
from web.browser import PHONE, WIDE, visiting

TIMEOUT_MS = 30_000


@pytest.fixture
def told() -> Iterator[ToldCluster]:
    with telling_server() as told:
        yield told


def section(page: Page) -> Locator:
    """The cluster's, once it is there."""
    found = page.locator("#cluster")
    expect(found).to_be_visible(timeout=TIMEOUT_MS)
    return found


def cells(page: Page, node: str) -> list[tuple[str | None, str | None]]:
    """The cells of a node: what it is to each pool, and the node's state."""
    strip = page.get_by_role("img", name=f"Pools of {node}: ")
    return [
        (cell.get_attribute("data-role"), cell.get_attribute("data-node"))
        for cell in strip.locator("i").all()
    ]


def rows(page: Page) -> list[list[str]]:
    found = page.get_by_role("table", name="Pools of all nodes").locator("tbody tr").all()
    return [row.locator("td").all_text_contents() for row in found]


def test_a_server_that_is_no_node_shows_no_cluster_and_asks_for_none(
    browser: Browser, server: ServerProcess
) -> None:
    with visiting(browser, f"{server.url}/dashboard") as visit:
        expect(visit.page.get_by_text("No pools yet")).to_be_visible(timeout=TIMEOUT_MS)
        visit.page.wait_for_timeout(1_500)  # longer than from one question to the next
        expect(visit.page.locator("#cluster")).to_be_hidden()
        expect(visit.page.get_by_role("heading", name="Pools", exact=True)).to_be_visible()
        assert not any(url.endswith("/v1/cluster") for url in visit.urls)
        assert visit.complaints == []


def test_a_node_shows_who_is_there_and_who_owns_what(browser: Browser, told: ToldCluster) -> None:
    with visiting(browser, f"{told.url}/dashboard") as visit:
        page = visit.page
        expect(section(page)).to_contain_text("a: connected to NATS, lease for 1.5 s")
        expect(page.get_by_role("heading", name="Cluster blockyard")).to_be_visible()
        nodes = page.locator("#nodes tbody tr")
        assert [row.locator("th, td").all_text_contents() for row in nodes.all()] == [
            ["a", "live", "", "1", "1", "120 ms ago"],
            ["b", "leaving", "", "1", "1", "120 ms ago"],
            ["c", "lost", "", "0", "0", "9 s ago"],
        ]
        assert cells(page, "a") == [("owner", "live"), ("standby", "live"), ("none", "live")]
        assert cells(page, "b") == [("standby", "leaving"), ("owner", "leaving"), ("none", "leaving")]
        assert cells(page, "c") == [("none", "lost")] * 3
        name = "Pools of a: owns acme-chat; holds warm other-code"
        expect(page.get_by_role("img", name=name, exact=True)).to_be_visible()
        assert rows(page) == [
            ["acme-lost", "none", "none", "2", "-"],
            ["acme-chat", "a", "b", "3", "0"],
            ["other-code", "b", "a", "1", "7"],
        ]
        expect(page.locator("#fenced")).to_be_hidden()
        assert visit.complaints == []


def test_links_lead_to_other_nodes_and_to_a_pool_at_its_owner(browser: Browser, told: ToldCluster) -> None:
    with Client(told.url) as client, visiting(browser, f"{told.url}/dashboard") as visit:
        client.create_pool("acme-chat", num_blocks=11, block_size=16)
        page, b = visit.page, URL.format(8485)
        there = section(page).get_by_role("link", name="b", exact=True)
        expect(there).to_have_attribute("href", f"{b}/dashboard")
        expect(page.get_by_role("link", name="a", exact=True)).to_have_count(0)
        elsewhere = page.get_by_role("link", name="other-code")
        expect(elsewhere).to_have_attribute("href", f"{b}/dashboard#pool=other-code")
        expect(page.get_by_role("link", name="acme-lost")).to_have_count(0)
        page.get_by_role("link", name="acme-chat").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="acme-chat", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        expect(page.locator("#details-title")).to_be_focused()


def test_an_address_that_is_not_of_the_web_is_no_link(browser: Browser, told: ToldCluster) -> None:
    bad = "javascript:document.title='taken'//"
    told.report = make_report(
        nodes=[make_node("a"), make_node("b", url=bad)], pools=[make_pool("p", "b", url=bad)]
    )
    with visiting(browser, f"{told.url}/dashboard") as visit:
        expect(section(visit.page).get_by_role("cell", name="p", exact=True)).to_be_visible()
        expect(visit.page.locator("#cluster a")).to_have_count(0)


def test_a_pool_is_seen_to_move_and_a_node_to_be_lost(browser: Browser, told: ToldCluster) -> None:
    pool = make_pool("p", "b", standby="a")
    told.report = make_report(nodes=[make_node("a"), make_node("b")], pools=[pool])
    with visiting(browser, f"{told.url}/dashboard") as visit:
        page = visit.page
        section(page)
        assert (cells(page, "a"), cells(page, "b")) == ([("standby", "live")], [("owner", "live")])
        lost = make_node("b", is_live=False)
        told.report = make_report(nodes=[make_node("a"), lost], pools=[make_pool("p", None)])
        expect(page.locator("#cluster-pools [data-mark=lost]")).to_have_text("none")
        assert cells(page, "b") == [("none", "lost")]
        moved = make_pool("p", "a", ownership=2, role="owner", lag=0)
        told.report = make_report(nodes=[make_node("a"), lost], pools=[moved])
        expect(page.locator("#nodes tr:first-child [data-role=owner]")).to_have_count(1)
        assert rows(page) == [["p", "a", "none", "2", "0"]]
        told.report = make_report(nodes=[make_node("a")], pools=[])
        expect(page.locator("#nodes tbody tr")).to_have_count(1)
        assert (cells(page, "a"), rows(page)) == ([], [])


@pytest.mark.parametrize(
    ("is_connected", "left_ms", "said"),
    [
        (False, 700, "a does not reach NATS: once its lease runs out"),
        (False, 0, "a has no lease: it answers for no pool until it reaches NATS again"),
        (True, 0, "a has no lease: it answers for no pool until it has a new one"),
    ],
)
def test_a_node_that_may_not_answer_says_so_and_why(
    browser: Browser, told: ToldCluster, is_connected: bool, left_ms: int, said: str
) -> None:
    with visiting(browser, f"{told.url}/dashboard") as visit:
        section(visit.page)
        told.report = make_report(is_connected=is_connected, lease_left_ms=left_ms)
        expect(visit.page.get_by_role("alert").filter(has_text=said)).to_be_visible()
        told.report = make_report()
        expect(visit.page.locator("#fenced")).to_be_hidden()


def test_a_chosen_pool_that_is_elsewhere_is_said_to_be_there(browser: Browser, told: ToldCluster) -> None:
    with visiting(browser, f"{told.url}/dashboard#pool=other-code") as visit:
        link = visit.page.get_by_role("link", name="other-code is a pool of b: look at it there")
        address = f"{URL.format(8485)}/dashboard#pool=other-code"
        expect(link).to_have_attribute("href", address, timeout=TIMEOUT_MS)


def test_pools_of_many_are_found_by_a_part_of_their_name(browser: Browser, told: ToldCluster) -> None:
    told.report = make_report(pools=[make_pool(f"Pool-{number:03}", "a") for number in range(120)])
    with visiting(browser, f"{told.url}/dashboard") as visit:
        page = visit.page
        expect(section(page)).to_contain_text("100 of 120 pools: those without an owner first")
        assert len(rows(page)) == 100
        page.get_by_label("Filter the cluster's pools by name").fill("pool-11")
        expect(page.locator("#cluster-pools-note")).to_have_text("10 pools")
        assert [row[0] for row in rows(page)] == [f"Pool-11{digit}" for digit in range(10)]


def test_of_very_many_pools_a_node_shows_its_own_alone(browser: Browser, told: ToldCluster) -> None:
    pools = [make_pool(f"p{number}", "a" if number % 3 else "b", standby="c") for number in range(2_001)]
    told.report = make_report(pools=pools)
    with visiting(browser, f"{told.url}/dashboard") as visit:
        expect(section(visit.page)).to_contain_text("100 of 2,001 pools")
        assert len(cells_of(visit.page, "a")) == 1_334
        assert set(cells_of(visit.page, "a")) == {"owner"}
        assert len(cells_of(visit.page, "b")) == 667
        assert set(cells_of(visit.page, "c")) == {"standby"}


def cells_of(page: Page, node: str) -> list[str]:
    """What a node with many cells is to each pool."""
    strip = page.get_by_role("img", name=f"Pools of {node}: ").locator("i")
    roles: list[str] = strip.evaluate_all("(cells) => cells.map((cell) => cell.dataset.role)")
    return roles


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_of_a_cluster_is_wider_than_the_screen(
    browser: Browser, told: ToldCluster, viewport: ViewportSize
) -> None:
    long = "n" * 64
    nodes = [make_node("a").model_copy(update={"node": long}), make_node("b"), make_node("c")]
    names = [f"{number:03}" + "p" * 120 for number in range(90)]
    pools = [make_pool(name, None, standby=long, ownership=99_999) for name in names]
    told.report = make_report(node=long, nodes=nodes, pools=pools)
    with visiting(browser, f"{told.url}/dashboard", viewport) as visit:
        section(visit.page)
        assert visit.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        widths = "(element) => [element.scrollWidth, element.clientWidth]"
        needed, given = visit.page.locator("#cluster-pools-frame").evaluate(widths)
        assert needed <= given
