"""Reading what is hostile leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

MAX_GROWTH_BYTES = 40_000
"""Bounded caches fill up meanwhile; a thousand documents, even of the smallest, would be more."""


def test_decoders_keep_nothing_of_what_they_read() -> None:
    """Ten times as many documents, each another, take as much memory: counted in a process of its own."""
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.growth"],
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    grown = json.loads(done.stdout)
    assert len(grown) > 20
    assert {name: size for name, size in grown.items() if size > MAX_GROWTH_BYTES} == {}
