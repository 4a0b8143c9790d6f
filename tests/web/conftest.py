from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from server_process import ServerProcess, running_server
from web.browser import CHROMIUM, running_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Starting one takes a second or two: one for all tests of a module."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with running_browser() as browser:
        yield browser


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server without pools."""
    with running_server("--log-level", "warning") as server:
        yield server
