"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], timeout_s: float = 30) -> None:
    """Until ``condition`` holds; fails where it does not within ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"still waiting after {timeout_s} s"
        time.sleep(0.01)
