"""`GET /docs` in a real browser, without the internet."""

from playwright.sync_api import Browser, expect

from server_process import ServerProcess
from web.browser import visiting


def test_it_lists_every_operation_and_asks_no_other_host(browser: Browser, server: ServerProcess) -> None:
    paths = server.call("GET", "/openapi.json")[1]["paths"]
    num_operations = sum(len(operations) for operations in paths.values())
    with visiting(browser, server.url + "/docs") as visit:
        expect(visit.page.locator(".opblock")).to_have_count(num_operations)
        assert all(url.startswith(server.url + "/") for url in visit.urls)
        assert visit.complaints == []
