"""Drawn tests that are run again until all that they are there to show has happened."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import seed

MAX_ROUNDS = 8

NIGHTLY = os.environ.get("BLOCKYARD_NIGHTLY") == "1"


def seeded(test: Any, round_number: int) -> Any:
    """``test`` with draws of this round's own: the same on every machine by day, new ones every night.

    Without a seed, Hypothesis gives a test the same draws in every round where it finds itself in CI.
    """
    return test if NIGHTLY else seed(round_number)(test)


def run_rounds(run: Callable[[int], Counter[str]], must_happen: Sequence[str]) -> Counter[str]:
    """Run rounds, print what happened and how often, and hold that nothing of ``must_happen`` is missing."""
    coverage: Counter[str] = Counter()
    for round_number in range(MAX_ROUNDS):
        coverage += run(round_number)
        if all(coverage[what] for what in must_happen):
            break
    print("\n".join(f"{count:7} {what}" for what, count in sorted(coverage.items())))
    missing = [what for what in must_happen if not coverage[what]]
    assert not missing, f"in {MAX_ROUNDS} rounds nothing came of {missing}"
    return coverage
