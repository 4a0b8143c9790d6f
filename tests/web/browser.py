"""A real browser before a real server."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, ViewportSize, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",  # root in a container has none
)
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Headless Chromium with a profile of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()


@dataclass  # without slots: playwright notes its handlers on their object
class Visit:
    """A page that was opened, what it asked for and what it complained about."""

    page: Page
    urls: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def note_request(self, request: Request) -> None:
        self.urls.append(request.url)

    def note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def note_error(self, error: object) -> None:
        self.complaints.append(str(error))

    def pool_row(self, pool: str) -> list[str]:
        """What the row of ``pool`` says: usage, then the numbers."""
        row = self.page.locator(f'#pools tr[data-pool="{pool}"]')
        usage = row.get_by_role("meter").get_attribute("aria-valuetext") or ""
        return [usage, *row.locator("td.number").all_text_contents()]


@contextmanager
def visiting(browser: Browser, url: str, viewport: ViewportSize = WIDE) -> Iterator[Visit]:
    """``url`` opened in a fresh context."""
    context = browser.new_context(viewport=viewport)
    try:
        visit = Visit(context.new_page())
        visit.page.on("request", visit.note_request)
        visit.page.on("console", visit.note_message)
        visit.page.on("pageerror", visit.note_error)
        visit.page.goto(url)
        yield visit
    finally:
        context.close()
