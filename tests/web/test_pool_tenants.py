"""The chosen pool's tenants in a real browser: what each holds, is promised, and waits for."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from access.token_files import add_token
from blockyard.client import Client, Lease, Pool
from server_process import ServerProcess, running_server
from waiting import wait_for
from web.browser import PHONE, WIDE, visiting

TIMEOUT_MS = 30_000
POOL = "shared"


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A server with a pool of 39 usable blocks, as an operator and the tenant acme reach it."""

    server: ServerProcess
    token: str
    pool: Pool
    own: Pool


@pytest.fixture
def tenancy(tmp_path: Path) -> Iterator[Tenancy]:
    tokens = tmp_path / "tokens"
    operator, tenant = add_token(tokens, "admin"), add_token(tokens, "allocate", tenant="acme")
    with (
        running_server("--token-file", str(tokens), "--log-level", "warning") as server,
        Client(server.url, token=operator) as client,
        Client(server.url, token=tenant) as own,
    ):
        pool = client.create_pool(POOL, num_blocks=40, block_size=16)
        yield Tenancy(server, operator, pool, own.pool(POOL))


@contextmanager
def viewing(browser: Browser, tenancy: Tenancy, viewport: ViewportSize = WIDE) -> Iterator[Page]:
    """The pool on the dashboard, signed in."""
    with visiting(browser, f"{tenancy.server.url}/dashboard#pool={POOL}", viewport) as visit:
        visit.page.get_by_role("textbox", name="Token").fill(tenancy.token)
        visit.page.get_by_role("button", name="Show pools").click()
        expect(visit.page.locator("#details-title")).to_have_text(POOL, timeout=TIMEOUT_MS)
        yield visit.page


def rows(page: Page) -> list[list[str]]:
    """What the table of tenants says."""
    return [
        row.locator("th, td").all_text_contents()
        for row in page.locator("#tenants tbody").locator("tr").all()
    ]


@contextmanager
def waiting_call(lease: Lease, pool: Pool) -> Iterator[None]:
    """A call of ``lease`` for one block more, which waits meanwhile, and is answered once one is free."""
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(lease.allocate_blocks, 1, wait_ms=60_000)
        wait_for(lambda: pool.tenant("acme").num_waiting == 1)
        try:
            yield
        finally:
            pool.remove_quota("acme")
            call.result()


def test_a_pool_without_tenants_shows_nothing_of_them(browser: Browser, tenancy: Tenancy) -> None:
    with tenancy.pool.lease("operator") as lease, viewing(browser, tenancy) as page:
        lease.allocate_blocks(1)
        expect(page.locator("#leases tbody tr")).to_have_count(1)
        expect(page.locator("#tenants-panel")).to_be_hidden()
        expect(page.locator("#leases small")).to_have_text("")


def test_tenants_appear_with_what_they_hold_and_are_promised(browser: Browser, tenancy: Tenancy) -> None:
    with viewing(browser, tenancy) as page, tenancy.pool.lease("operator"):
        tenancy.pool.set_quota("acme", guaranteed_blocks=10, max_blocks=20)
        with tenancy.own.lease("scheduler-0") as lease:
            lease.allocate_blocks(5)
            expect(page.locator("#tenants tbody tr").first.locator("td").first).to_have_text("5")
            assert rows(page) == [["acme", "5", "10", "20", "0"], ["no tenant", "0", "0", "none", "0"]]
            bar = page.get_by_role("meter", name="Blocks held by acme")
            assert bar.get_attribute("aria-valuetext") == "5 of 20, 10 guaranteed"
            assert bar.locator("i").get_attribute("style") == "left: 50%;"
            expect(page.locator("#tenants-note")).to_have_text("1 tenant.")
            expect(page.locator("#tenants-mark")).to_be_visible()


def test_a_lease_shows_its_tenant_and_one_of_none_shows_none(browser: Browser, tenancy: Tenancy) -> None:
    with (
        tenancy.pool.lease("operator") as first,
        tenancy.own.lease("scheduler-0") as second,
        viewing(browser, tenancy) as page,
    ):
        second.allocate_blocks(2)
        first.allocate_blocks(1)
        expect(page.locator("#leases small")).to_have_text(["acme", ""], timeout=TIMEOUT_MS)
        page.get_by_role("button", name="Recount").click()
        expect(page.locator("#holders tbody tr")).to_have_count(2)
        assert sorted(page.locator("#holders small").all_text_contents()) == ["", "acme"]


@pytest.mark.parametrize(("guaranteed", "is_below"), [(0, False), (4, True)])
def test_calls_that_wait_stand_out_and_more_so_below_the_guarantee(
    browser: Browser, tenancy: Tenancy, guaranteed: int, is_below: bool
) -> None:
    with tenancy.pool.lease("operator") as other, tenancy.own.lease("scheduler-0") as lease:
        lease.allocate_blocks(3)
        other.allocate_blocks(36)
        tenancy.pool.set_quota("acme", guaranteed_blocks=guaranteed, max_blocks=max(3, guaranteed))
        with viewing(browser, tenancy) as page, waiting_call(lease, tenancy.pool):
            waiting = page.locator("#tenants tbody tr").first.locator("td").last
            expect(waiting).to_have_text("1")
            assert waiting.evaluate("(cell) => 'waits' in cell.dataset")
            assert waiting.evaluate("(cell) => 'below' in cell.dataset") is is_below
            other.release()


def test_a_phone_shows_tenants_without_scrolling_sideways(browser: Browser, tenancy: Tenancy) -> None:
    tenancy.pool.set_quota(
        "a-tenant-with-a-name-of-more-than-thirty-letters", guaranteed_blocks=1, max_blocks=39
    )
    with viewing(browser, tenancy, PHONE) as page:
        expect(page.locator("#tenants tbody tr")).to_have_count(1)
        widths = "(element) => [element.scrollWidth, element.clientWidth]"
        needed, given = page.locator("#tenants-panel .scrolls").evaluate(widths)
        assert needed <= given
